/* Each program is two units that share their types, so that dwz has something to move: the second is built with -DSECOND. */
typedef unsigned long word;
typedef word bigger;
typedef unsigned char tiny;
typedef tiny row[3];
typedef float vector __attribute__((vector_size(16)));
struct lock { int owner; char held; };
typedef struct lock lock_t;
typedef lock_t again_t;
typedef struct { short low; again_t lock; } nameless;
typedef union { int one; bigger two; } either_t;
union both { char small; double large; struct { short low, high; } pair; };
enum colour { RED, GREEN = 7 };
struct bits {
    unsigned a : 3, b : 7;
    int : 5;
    unsigned c : 20;
    unsigned long long d : 40;
    char e;
    signed char f : 4;
    unsigned : 0;
    unsigned short g : 9;
    long long h : 33;
    _Bool i : 1;
    enum colour j : 4;
    struct { unsigned k : 12, l : 12; };
    union { unsigned m : 5; unsigned long long n : 45; };
};
struct tight { char a; int b; short c : 5; long long d; unsigned e : 30, f : 3; } __attribute__((packed));
struct node { struct node *next; void (*call)(struct node *, int); struct lock locks[3]; };
struct empty { };
struct whole {
    char tag;
    __attribute__((aligned(64))) lock_t guard;
    short after;
    struct { int x; union { long y; char z[3]; struct { tiny deep, deeper[5]; }; }; };
    struct { struct lock inner; int deep; } named;
    union { int one; bigger two; } choice[2];
    const volatile int flags : 3, more : 7;
    const char *text;
    struct node list[3][2];
    union both either;
    enum colour colour;
    again_t again;
    float f;
    double d;
    long double ld;
    tiny *const pointers[4];
    int (*const *volatile table)[7];
    enum { A, B } anonymous;
    row rows[2];
    char none[0];
    struct empty empty;
    _Complex float complex;
    vector four;
    const vector (*more_fours)[2];
    nameless without;
    either_t others[2];
    struct bits bits;
    struct tight tight;
    word rest[];
};

#ifndef SECOND
#define OF(name) name
#else
#define OF(name) second_##name
#endif
#define KEEP __attribute__((used))
KEEP struct whole OF(whole) = { .tag = 1 };
KEEP static struct node OF(table)[2][3];
KEEP struct bits OF(bits) = { .a = 1 };
KEEP const struct tight OF(tight) = { .b = 2 };
KEEP union both OF(both)[5];
KEEP __attribute__((aligned(128))) static char OF(padded)[5] = { 1 };
KEEP long long OF(wide) = 1;
KEEP nameless *volatile OF(pointer);
KEEP either_t OF(pair);
word *OF(use)(void)
{
    KEEP static word hidden;
    OF(table)[1][2].next = 0;
    hidden++;
    return &OF(whole).rest[OF(padded)[1]];
}
