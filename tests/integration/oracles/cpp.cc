// Each program is two units that share their types: the second is built with -DSECOND.
namespace db {
enum class Kind : unsigned char { Leaf, Inner };
struct Empty {};
struct Base {
    int id;
    virtual int get() { return id; }
    static long shared[4];
};
class Other {
    char tag = 1;

protected:
    short kept = 2;
};
struct Derived : Base, private Other {
    struct Inner { Kind kind; int &reference; } inner;
    class { public: int x; union { double y; char z[3]; }; } unnamed;
    union { long either; void *pointer; };
    bool flag : 1, other : 1;
    Kind kind : 3;
    int Base::*field;
    int (Base::*method)();
    char behind;
    using Method = int (Other::*const)(int) const;
    Method methods[2];
    alignas(32) char last;
    explicit Derived(int &r) : inner{Kind::Leaf, r}, unnamed{}, either(0), flag(true), other(false), kind(Kind::Inner), field(nullptr), method(nullptr), behind(0), methods{}, last(0) {}
};
struct Virtual : virtual Base { char first; long middle; char last; decltype(nullptr) null; };
template <class T, int N> struct Shard : Empty {
    T hits;
    T *more[N];
    struct Slot { T value; char state; } slots[N];
    static T total;
    int get() const { return N; }
};
template <class T, int N> T Shard<T, N>::total;
template <class T> struct Holder;
template <class T> struct Holder<T *> { Shard<T, 2> shard; Holder<T *> *next; };
namespace { struct Hidden { char c; long l; }; }
}

#ifndef SECOND
#define OF(name) name
long db::Base::shared[4];
#else
#define OF(name) second_##name
#endif
namespace deep {
int OF(number);
[[gnu::used]] db::Shard<long, 3> OF(shards)[2];
[[gnu::used]] db::Holder<char *> OF(holder);
[[gnu::used]] static db::Hidden OF(hidden) = {1, 2};
[[gnu::used]] db::Base OF(base);
[[gnu::used]] db::Virtual OF(late);
}
int &OF(where)(db::Derived *derived, int &number)
{
    struct Local { char c; int &r; };
    [[gnu::used]] static const Local local = {1, deep::OF(number)};
    [[gnu::used]] static decltype(derived->unnamed) unnamed;
    db::Shard<long, 3>::total += deep::OF(shards)[1].get() + db::Base::shared[1];
    number += derived->inner.reference + unnamed.x;
    return local.r;
}
[[gnu::used]] db::Derived *OF(derived);
[[gnu::used]] alignas(db::Derived) char OF(place)[sizeof(db::Derived)];
