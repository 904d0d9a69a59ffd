# A kernel of some bytes, for x86-64, or for arm64 with ARM64 defined: the sections and labels by which one is known, and the table of symbols that it
# carries (scripts/kallsyms.c), in the order of 6.5 and later, with absolute addresses. Each letter is its own code.
# Linked by kernel.ld beside it.

    .section .text, "ax"
    .globl _text, _stext, work, _etext
    .balign 4096
_text:
.ifdef ARM64
    nop
    b _stext
    .quad 0, 0, 0, 0, 0, 0
    .ascii "ARMd"
    .long 0
.endif
_stext:
    nop
    .balign 16
work:
    ret
    .balign 16
_etext:

    .section .init.text, "ax"
_sinittext:
    ret

    .section __param, "a"
    .quad 0

    .data
    .balign 64
    .globl jiffies, jiffies_64, tasklist_lock, nr_files, _edata
_sdata:
jiffies:
jiffies_64:
    .quad 1
    .skip 0x30
tasklist_lock:
    .quad 0, 1
nr_files:
    .quad 1
    .balign 64
_edata:

    .section .rodata, "a"
    .balign 64
    .globl linux_banner
linux_banner:
    .asciz "Linux version 6.5.0 (for tests)"

    .macro name text
    .byte 2f - 1f
1:  .ascii "\text"
2:
    .endm

    .balign 8
num_syms:
    .long 12
    .balign 8
names:
    name T_text
    name T_stext
    name twork
    name T_etext
    name t_sinittext
    name Rlinux_banner
    name D_sdata
    name Djiffies
    name Djiffies_64
    name Dtasklist_lock
    name dnr_files
    name D_edata
    .balign 8
markers:
    .long 0
    .balign 8
tokens:
    .set code, 0
    .rept 256
    .if code >= 0x21 && code <= 0x7e
    .byte code
    .endif
    .byte 0
    .set code, code + 1
    .endr
    .balign 8
index:
    .set code, 0
    .set at, 0
    .rept 256
    .short at
    .if code >= 0x21 && code <= 0x7e
    .set at, at + 1
    .endif
    .set at, at + 1
    .set code, code + 1
    .endr
    .balign 8
addresses:
    .quad _text, _stext, work, _etext, _sinittext, linux_banner
    .quad _sdata, jiffies, jiffies_64, tasklist_lock, nr_files, _edata

    .section .note.GNU-stack, "", %progbits
