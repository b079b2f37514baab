/* Functions between libzmq and the kernel's epoll, and how they get there; see quothd.threads.polling.

   A program gets the functions of other libraries through a table of addresses, which the loader fills. The
   functions here take two places in the table of the library that holds libzmq. */

#ifndef QUOTH_POLLING_H
#define QUOTH_POLLING_H

#include <stdint.h>

#if defined(__linux__) && defined(__LP64__)
#include <elf.h>
#include <link.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

/* libzmq gives the kernel the address of an object for each descriptor, and gets it back with its events. The low
   bits of the address are free for a mark while the descriptor is not polled for input. */
enum { QUOTH_UNWANTED = 1, QUOTH_OUTPUT_ALONE = 2, QUOTH_MARKS = 3 };

/* A descriptor that is polled for nothing is reported once at most, in place of again and again. */
static int quoth_epoll_ctl(int set, int operation, int fd, struct epoll_event *event)
{
    if (operation == EPOLL_CTL_DEL || event->data.u64 & QUOTH_MARKS)
        return epoll_ctl(set, operation, fd, event);
    struct epoll_event wanted = *event;
    uint32_t directions = wanted.events & (EPOLLIN | EPOLLOUT);
    if (!directions && operation == EPOLL_CTL_MOD) {
        wanted.events |= EPOLLET;
        wanted.data.u64 |= QUOTH_UNWANTED;
    } else if (directions == EPOLLOUT)
        wanted.data.u64 |= QUOTH_OUTPUT_ALONE;
    return epoll_ctl(set, operation, fd, &wanted);
}

/* An error is reported as what the descriptor is polled for, for a read or a write shows it. For both, libzmq would
   read twice, and the second time it may no longer want to. */
static int quoth_epoll_wait(int set, struct epoll_event *events, int most, int milliseconds)
{
    int count = epoll_wait(set, events, most, milliseconds);
    for (int i = 0; i < count; i++) {
        uint64_t mark = events[i].data.u64 & QUOTH_MARKS;
        events[i].data.u64 &= ~(uint64_t)QUOTH_MARKS;
        if (mark == QUOTH_UNWANTED)
            events[i].events = 0;
        else if (mark == QUOTH_OUTPUT_ALONE)
            events[i].events = EPOLLOUT;
        else if (events[i].events & (EPOLLIN | EPOLLOUT))
            events[i].events &= ~(uint32_t)(EPOLLERR | EPOLLHUP);
    }
    return count;
}

static const struct quoth_import {
    const char *name;
    void *function;
} quoth_imports[] = {{"epoll_ctl", (void *)quoth_epoll_ctl}, {"epoll_wait", (void *)quoth_epoll_wait}};
enum { QUOTH_IMPORTS = sizeof quoth_imports / sizeof quoth_imports[0], QUOTH_SLOTS_MAX = 4 };

struct quoth_library {
    uintptr_t inside; /* an address in it */
    void **slots[QUOTH_IMPORTS][QUOTH_SLOTS_MAX];
    int counts[QUOTH_IMPORTS];
};

static int quoth_contains(const struct dl_phdr_info *info, uintptr_t address)
{
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        uintptr_t begin = info->dlpi_addr + part->p_vaddr;
        if (part->p_type == PT_LOAD && address >= begin && address - begin < part->p_memsz)
            return 1;
    }
    return 0;
}

/* glibc has made an address of it, other loaders leave the offset. */
static const void *quoth_at(const struct dl_phdr_info *info, ElfW(Addr) value)
{
    return (const void *)(value < info->dlpi_addr ? info->dlpi_addr + value : value);
}

static void quoth_find_slots(struct quoth_library *library, uintptr_t base, const ElfW(Rela) *rows,
                             size_t size, const ElfW(Sym) *symbols, const char *names)
{
    for (size_t row = 0; rows && row < size / sizeof *rows; row++) {
        size_t symbol = ELF64_R_SYM(rows[row].r_info);
        if (!symbol || symbols[symbol].st_shndx != SHN_UNDEF || rows[row].r_addend)
            continue;
        for (int i = 0; i < QUOTH_IMPORTS; i++)
            if (!strcmp(names + symbols[symbol].st_name, quoth_imports[i].name) && library->counts[i] < QUOTH_SLOTS_MAX)
                library->slots[i][library->counts[i]++] = (void **)(base + rows[row].r_offset);
    }
}

static int quoth_look(struct dl_phdr_info *info, size_t size, void *argument)
{
    struct quoth_library *library = argument;
    const ElfW(Dyn) *entry = NULL;
    const ElfW(Rela) *calls = NULL, *others = NULL;
    const ElfW(Sym) *symbols = NULL;
    const char *names = NULL;
    size_t calls_size = 0, others_size = 0;
    ElfW(Xword) kind = DT_RELA;
    (void)size;
    if (!quoth_contains(info, library->inside))
        return 0;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
            entry = (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
    for (; entry && entry->d_tag != DT_NULL; entry++)
        switch (entry->d_tag) {
        case DT_JMPREL: calls = quoth_at(info, entry->d_un.d_ptr); break;
        case DT_PLTRELSZ: calls_size = entry->d_un.d_val; break;
        case DT_PLTREL: kind = entry->d_un.d_val; break;
        case DT_RELA: others = quoth_at(info, entry->d_un.d_ptr); break;
        case DT_RELASZ: others_size = entry->d_un.d_val; break;
        case DT_SYMTAB: symbols = quoth_at(info, entry->d_un.d_ptr); break;
        case DT_STRTAB: names = quoth_at(info, entry->d_un.d_ptr); break;
        }
    if (symbols && names && kind == DT_RELA) {
        quoth_find_slots(library, info->dlpi_addr, others, others_size, symbols, names);
        quoth_find_slots(library, info->dlpi_addr, calls, calls_size, symbols, names);
    }
    return 1;
}

/* Takes the places. A page that the loader has made read-only stays writable. */
static int quoth_redirect(uintptr_t inside)
{
    struct quoth_library library = {.inside = inside};
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    dl_iterate_phdr(quoth_look, &library);
    for (int i = 0; i < QUOTH_IMPORTS; i++) {
        if (!library.counts[i])
            return 0;
        for (int j = 0; j < library.counts[i]; j++) {
            void *begin = (void *)((uintptr_t)library.slots[i][j] & ~(page - 1));
            if (mprotect(begin, page, PROT_READ | PROT_WRITE) < 0)
                return 0;
        }
    }
    for (int i = 0; i < QUOTH_IMPORTS; i++)
        for (int j = 0; j < library.counts[i]; j++)
            __atomic_store_n(library.slots[i][j], quoth_imports[i].function, __ATOMIC_RELEASE);
    return 1;
}
#else
static int quoth_redirect(uintptr_t inside)
{
    (void)inside;
    return 0;
}
#endif

#endif
