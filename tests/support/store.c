/* A second implementation of docs/protocol.md, for tests. It shares no code with the package.

store ls DIR    store get DIR NAME > FILE    store put DIR NAME FILE [--overwrite]    store rm DIR NAME
store hold DIR NAME SECONDS    store check DIR
store die DIR NAME FILE STEP    a put that kills itself at its STEPth point; ends with 0 if it has fewer

It neither evicts nor rebuilds a store after a reboot. Ends with 3 where there is no such object, 4 where the
name is taken, 5 where there is no room, 1 for all else. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

typedef unsigned char u8;
typedef uint32_t u32;
typedef unsigned long long u64;
struct event { u64 number, generation; u32 kind, length; u8 name[256], zeros[8]; };
struct slot {
    u64 generation, hash, file, size, allocated, published, expires, owner;
    u32 state, flags, length, parts, data_crc, crc;
    u64 used;
    u32 head, next;
    u8 payload[408];
};
struct control {
    u8 magic[8]; u32 version, slot_size; u64 slots_at; u8 id[16], boot[16]; u64 modulus, capacity;
    u32 eviction, mode, durable, configured; u8 gap[40];
    u64 sequence, journal, buckets, free, removed, generation, files, owners, objects, bytes, events, removing, puts,
        evictions, expired;
    u8 gap2[88]; u64 changing; u8 gap3[3752];
    struct { u64 number; u32 length, crc; u8 payload[4080]; } journals[2];
    struct event ring[256];
    struct { u64 hash; u32 length, waiting; } waiters[256];
    struct slot slots[];
};
_Static_assert(offsetof(struct control, sequence) == 128 && offsetof(struct control, changing) == 336, "header");
_Static_assert(offsetof(struct control, ring) == 12288 && offsetof(struct control, slots) == 90112, "control");
_Static_assert(sizeof(struct slot) == 512 && offsetof(struct slot, payload) == 104, "slot");
enum { LIVE = 1, GONE = 2 };
#define SPAN (1ull << 36)                              /* address space: control may grow so far while it is mapped */
#define TRY(call) ({ __typeof__(call) r_ = (call); if ((long)r_ == -1) fail(1, "%s: %s", #call, strerror(errno)); r_; })

static int dir, control, pins, commits, until;         /* until: points left until this process kills itself */
static struct control *shared, *c;                     /* what all see, and the view that is worked on */
static struct { u64 at; u32 length, zero; } pieces[250]; /* what the commit that is being prepared changes in c */
static int changes;

static _Noreturn void fail(int code, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    exit((fputc('\n', stderr), code));
}
static void point(void) { if (until && !--until) kill(getpid(), SIGKILL); }
static u64 now(void) { struct timespec t; clock_gettime(CLOCK_REALTIME, &t); return t.tv_sec * 1000000000ull + t.tv_nsec; }

static u32 crc32(u32 crc, const void *data, size_t length) {
    crc = ~crc;
    for (const u8 *p = data; length--; p++) {
        crc ^= *p;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (0xEDB88320u & -(crc & 1));
    }
    return ~crc;
}
static u32 slot_crc(const struct slot *s) { return crc32(crc32(0, s, 84), s->payload, s->length < 256 ? s->length : 0); }
static u64 hash(const char *name) {
    u64 r = 0;
    for (; *name; name++) r = ((unsigned __int128)r * 256 + (u8)*name) % c->modulus;
    return (unsigned __int128)r * 0x9E3779B97F4A7C15u % c->modulus;
}
static u64 bucket(u64 h) {
    u64 power = 1;
    while (power < c->buckets) power *= 2;
    u64 i = h & (power - 1);
    return i < c->buckets ? i : i - power / 2;
}
/* Take, drop or test a record lock; 0 if it was taken or, for F_GETLK, if no other process has it. */
static int lock(int fd, int type, u64 byte, int how) {
    struct flock l = {.l_type = type, .l_start = byte, .l_len = 1};
    int r;
    do r = fcntl(fd, how, &l); while (r && (errno == EINTR || errno == EDEADLK));
    return how == F_GETLK ? l.l_type != F_UNLCK : r;
}

/* --- files --- */

static char *part_of(u64 file, u32 part) {
    static char text[30];
    return sprintf(text, part ? "%016llx-%u" : "%016llx", file, part), text;
}
static int open_object(const struct slot *s) {
    return openat(dir, part_of(s->file, 0), O_RDONLY | O_NOFOLLOW);
}
/* Objects may have further names, FILE-1 and so on, for files of others: made in order, removed in reverse; they stay
   while somebody has the object attached. */
static void unlink_file(u64 file) {
    u32 part = 0;
    while (!faccessat(dir, part_of(file, part + 1), F_OK, AT_SYMLINK_NOFOLLOW)) part++;
    for (u64 i = 0; part && i < c->buckets; i++)
        if (c->slots[i].state == GONE && c->slots[i].file == file) part = 0;
    do unlinkat(dir, part_of(file, part), 0); while (part--);
}
/* The bytes that are freed if the names of an object go: those of its files that no other object has. */
static u64 freed_by(const struct slot *s) {
    struct stat st;
    u64 bytes = s->file ? 0 : s->allocated;
    for (u32 part = 0; s->file && part <= s->parts; part++)
        if (!fstatat(dir, part_of(s->file, part), &st, AT_SYMLINK_NOFOLLOW) && st.st_nlink == 1) bytes += st.st_blocks * 512;
    return bytes;
}
static int is_shared(u64 file) {
    struct stat st;
    return !fstatat(dir, part_of(file, 0), &st, AT_SYMLINK_NOFOLLOW) && st.st_nlink > 1;
}
static u64 room(void) {                                /* slots that the file has */
    struct stat st;
    if (fstat(control, &st) || st.st_size < 90112) fail(1, "control is cut off");
    return (st.st_size - 90112) / 512;
}

static void begin(void);
static void end(void);

/* --- looking --- */

static int is_expired(const struct slot *s) { return s->expires && s->expires <= now(); }
static struct slot *find(const char *name) {
    u64 h = hash(name), n = c->buckets, steps = n;
    for (u64 i = n ? c->slots[bucket(h)].head : 0; i && i <= n && steps--; i = c->slots[i - 1].next) {
        struct slot *s = &c->slots[i - 1];
        if (s->state == LIVE && s->hash == h && s->length == strlen(name) && !memcmp(s->payload, name, s->length)
            && s->crc == slot_crc(s)) return s;
    }
    return NULL;
}
static u64 sequence(void) { return __atomic_load_n(&shared->sequence, __ATOMIC_ACQUIRE); }
static void store(u64 *field, u64 value) { __atomic_store_n(field, value, __ATOMIC_RELEASE); }
static struct control *map(int kind) { return TRY(mmap(NULL, SPAN, PROT_READ | PROT_WRITE, kind | MAP_NORESERVE, control, 0)); }
/* Whether a commit was written down and not applied. */
static int is_pending(struct control *view) {
    u64 n = view->journal + 1;
    __typeof__(view->journals[0]) *area = &view->journals[n % 2];
    return area->number == n && area->length <= 4080 && area->crc == crc32(crc32(0, &n, 8), area->payload, area->length);
}
/* Apply it to a view. */
static int replay(struct control *view) {
    u64 n = view->journal + 1, i = 0;
    __typeof__(view->journals[0]) *area = &view->journals[n % 2];
    if (!is_pending(view)) return 0;
    while (i < area->length) {
        u64 at = *(u64 *)(area->payload + i), length = *(u32 *)(area->payload + i + 8);
        memcpy((u8 *)view + at, area->payload + i + 16, length);
        i += 16 + (length + 7) / 8 * 8;
    }
    store(&view->journal, n);
    return 1;
}
/* Look a name up without a lock; what is found lies in c. */
static struct slot *look(const char *name) {
    for (int tries = 0;; tries++) {
        u64 before = sequence();
        c = shared;
        struct slot *s = find(name);
        if (s || (before % 2 == 0 && before == sequence())) return s;
        if (before % 2 && tries > 1000) begin(), end();     /* its writer is dead, or stopped: wait for it */
        else if (before % 2) usleep(1000);
    }
}
/* Copy an inline object; the number of its slots, or 0 where it is damaged or being replaced. */
static int copy_inline(const struct slot *s, u8 *to) {
    u32 done = 0, at = (s->length + 7) / 8 * 8, link = s->parts;
    for (int slots = 1; s->size <= 4096; slots++, at = 0) {
        u32 part = s->size - done < 408 - at ? s->size - done : 408 - at;
        memcpy(to + done, (slots == 1 ? s : &c->slots[link - 1])->payload + at, part);
        if (slots > 1) link = c->slots[link - 1].next;
        if ((done += part) == s->size) return slots;
        if (!link || link > c->buckets) return 0;
    }
    return 0;
}
static int attach(const char *name) {
    for (;;) {
        struct slot *s = look(name);
        if (!s || is_expired(s)) fail(3, "there is no %s", name);
        if (!s->file) {                                /* a copy is right if its crc is */
            static u8 copy[4096];
            struct slot before = *s;
            int file = TRY(memfd_create("inline", 0));
            if (!copy_inline(s, copy) || crc32(0, copy, before.size) != before.data_crc) { close(file); continue; }
            if (TRY(pwrite(file, copy, before.size, 0)) != (ssize_t)before.size) fail(1, "no room for a copy");
            return file;
        }
        u64 slot = s - c->slots, generation = s->generation;
        TRY(lock(pins, F_RDLCK, slot, F_SETLKW));
        if (is_pending(shared)) begin(), end();        /* the state is the last complete journal: look there */
        if ((s = look(name)) && s == &c->slots[slot] && s->generation == generation) {
            int fd = open_object(s);
            if (fd >= 0 || errno != ENOENT) return TRY(fd);
        }
        lock(pins, F_UNLCK, slot, F_SETLK);
    }
}

/* --- changing --- */

static void check_control(void) {
    struct stat st;
    TRY(fstat(control, &st));
    if (!st.st_nlink || !memcmp(shared->magic, "destroyd", 8)) fail(1, "the store was destroyed");
    if (room() < shared->buckets) fail(1, "control is cut off");
}
/* Take the commit lock, repair what a killed writer left, and prepare changes in private pages. */
static void begin(void) {
    TRY(lock(commits, F_WRLCK, 0, F_SETLKW));
    c = shared;
    check_control();
    replay(shared);
    if (sequence() % 2) store(&shared->sequence, sequence() + 1);
    if (shared->changing) unlink_file(shared->files + 1), unlink_file(shared->removing), store(&shared->changing, 0);
    c = map(MAP_PRIVATE);
    c->removing = changes = 0;
}
static void end(void) {
    munmap(c, SPAN);
    c = shared;
    lock(commits, F_UNLCK, 0, F_SETLK);
}
static void changed(void *field, u32 length) {
    if (changes == 250) fail(1, "more changes than a journal holds");
    pieces[changes].at = (u8 *)field - (u8 *)c, pieces[changes++].length = length;
}
static void set(u32 *link, u32 value) { *link = value, changed(link, 4); }
static void commit(void) {
    static __typeof__(shared->journals[0]) area;
    u64 n = area.number = ++c->journal, where = offsetof(struct control, journals) + n % 2 * 4096, start = 0;
    changed(&c->buckets, 120);
    if (c->removing) store(&shared->changing, 1), point();
    for (int i = 0; i < changes; i++) {
        if (start + 24 + pieces[i].length > 4080) fail(1, "more changes than a journal holds");
        memcpy(area.payload + start, &pieces[i], 16);
        memcpy(area.payload + start + 16, (u8 *)c + pieces[i].at, pieces[i].length);
        start += 16 + (pieces[i].length + 7) / 8 * 8;
    }
    area.length = start, area.crc = crc32(crc32(0, &n, 8), area.payload, start);
    TRY(pwrite(control, area.payload, start / 2, where + 16)), point();   /* in two parts, to be killed between them */
    TRY(pwrite(control, area.payload, start, where + 16)), point();
    TRY(pwrite(control, &area, 16, where)), point();
    if (c->durable) TRY(fdatasync(control)), point();
    store(&shared->sequence, sequence() + 1), point();
    for (int i = 0; i < changes; i++) memcpy((u8 *)shared + pieces[i].at, (u8 *)c + pieces[i].at, pieces[i].length), point();
    store(&shared->journal, n), point();
    store(&shared->sequence, sequence() + 1), point();
    changes = 0;
    if (shared->removing) unlink_file(shared->removing), point();
    store(&shared->changing, 0), point();
}
static void fill(struct slot *to, struct slot s) {     /* a slot of state s; the links stay */
    s.head = to->head, s.next = to->next, s.crc = slot_crc(&s);
    *to = s;
    changed(to, sizeof s);
}
/* A slot that is free, or a new one, which splits a bucket. */
static struct slot *take_slot(void) {
    u64 n = c->buckets, i = c->free, top = 1;
    if (i) return c->free = c->slots[i - 1].next, &c->slots[i - 1];
    if (n == room() && (errno = posix_fallocate(control, 0, 90112 + n * 2 * 512)))
        fail(5, "no room for control: %s", strerror(errno));
    c->buckets = n + 1;
    while (top * 2 <= n) top *= 2;
    for (u32 *link = n ? &c->slots[n - top].head : &(u32){0}; (i = *link);) {
        struct slot *s = &c->slots[i - 1];
        if ((s->hash & (top * 2 - 1)) == n) set(link, s->next), set(&s->next, c->slots[n].head), set(&c->slots[n].head, i);
        else link = &s->next;
    }
    return &c->slots[n];
}
static void tell(int kind, const struct slot *s) {
    struct event *e = &c->ring[++c->events % 256];
    *e = (struct event){.number = c->events, .generation = s->generation, .kind = kind, .length = s->length};
    memcpy(e->name, s->payload, s->length);
    changed(e, sizeof *e);
}
/* An object goes, and its slot with it unless the object is attached. The result is a pin byte to unlock after the commit. */
static int64_t take_out(struct slot *s) {
    u64 slot = s - c->slots;
    int excluded = !lock(pins, F_WRLCK, slot, F_SETLK);   /* nobody is to attach it in this moment */
    int held = !excluded;
    u64 freed = held ? s->file ? 0 : s->allocated - 512 : freed_by(s); /* what is held counts until its slot is free */
    u32 *link = &c->slots[bucket(s->hash)].head;
    while (*link != slot + 1) link = &c->slots[*link - 1].next;
    set(link, s->next);
    c->objects--;
    if (s->file) c->removing = held && is_shared(s->file) ? 0 : s->file; /* a shared file keeps its name, to be counted */
    else if (s->parts) {                               /* their chain goes before the list of free slots */
        u32 *last = &s->parts;
        while (*last) last = &c->slots[*last - 1].next;
        u32 first = s->parts;
        set(last, c->free), c->free = first;
    }
    c->bytes -= freed;
    fill(s, (struct slot){.state = held ? GONE : 0, .file = s->file, .parts = held && s->file ? s->parts : 0,
                          .allocated = !held ? 0 : s->file ? s->allocated : 512});
    set(&s->next, held ? c->removed : c->free);
    *(held ? &c->removed : &c->free) = slot + 1;
    return excluded ? (int64_t)slot : -1;
}
static void check_room(const char *name, int overwrite, u64 wanted) {
    struct slot *old = find(name);
    if (old && !overwrite && !is_expired(old)) fail(4, "%s is taken", name);
    if (c->capacity && c->bytes + wanted > c->capacity) fail(5, "no room for %llu bytes: %llu are used", wanted, c->bytes);
}
static void put(const char *name, const char *path, int overwrite) {
    static u8 block[1 << 16];
    char self[40];
    struct stat st;
    struct slot s = {.length = strlen(name), .state = LIVE}, *to, *old;
    int from = TRY(open(path, O_RDONLY)), file;
    int64_t excluded = -1;
    if (s.length < 1 || s.length > 255) fail(1, "names have 1 to 255 bytes");
    memcpy(s.payload, name, s.length);
    s.hash = hash(name);
    file = TRY(openat(dir, ".", O_TMPFILE | O_RDWR, 0600));
    for (ssize_t got; (got = TRY(read(from, block, sizeof block)));)
        if (TRY(write(file, block, got)) != got) fail(5, "no room to write");
    TRY(fchmod(file, c->mode & 0444));
    if (c->durable) TRY(fsync(file));
    TRY(fstat(file, &st)), point();
    begin(), check_room(name, overwrite, st.st_blocks * 512);
    to = take_slot(), s.file = ++c->files;
    store(&shared->changing, 1), point();
    unlink_file(s.file);                               /* what a killed writer left there */
    sprintf(self, "/proc/self/fd/%d", file);
    TRY(linkat(AT_FDCWD, self, dir, part_of(s.file, 0), AT_SYMLINK_FOLLOW)), point();
    if (c->durable) TRY(fsync(dir)), point();
    if ((old = find(name))) excluded = take_out(old);
    s.generation = ++c->generation, s.size = st.st_size, s.allocated = st.st_blocks * 512;
    s.published = s.used = now();
    fill(to, s);
    set(&to->next, c->slots[bucket(s.hash)].head);
    set(&c->slots[bucket(s.hash)].head, to - c->slots + 1);
    c->objects++, c->puts++, c->bytes += s.allocated;
    tell(1, &s), commit();
    if (excluded >= 0) lock(pins, F_UNLCK, excluded, F_SETLK);
    end();
}
static void drop(const char *name) {
    begin();
    struct slot *s = find(name);
    if (!s) fail(3, "there is no %s", name);
    tell(2, s);
    int64_t excluded = take_out(s);
    commit();
    if (excluded >= 0) lock(pins, F_UNLCK, excluded, F_SETLK);
    end();
}

/* --- what a store is to be at any time --- */

static int wrong;
static void expect(int right, const char *what, long long where) { if (!right) wrong = 1, printf("%s: %lld\n", what, where); }
static struct { u64 inode, bytes; } *files;             /* of live objects, each as often as it has names */
static int count;
static int rising(const void *a, const void *b) { return (*(u64 *)a > *(u64 *)b) - (*(u64 *)a < *(u64 *)b); }
static void follow(u32 i, u8 *seen, u32 state, u64 of) {
    for (; i; i = c->slots[i - 1].next) {
        if (i > c->buckets || seen[i - 1]++) fail(1, "a chain or list runs in a circle or out of the file: %llu", of);
        expect(c->slots[i - 1].state == state, "state and list", i - 1);
        if (state == LIVE) expect(bucket(c->slots[i - 1].hash) == of, "not in its chain", i - 1);
    }
}
static void check(void) {
    begin();
    u64 n = c->buckets, objects = 0, bytes[4] = {0}, here = 0, *generations = calloc(n + 1, 8);
    u8 *seen = calloc(n + 1, 1);
    expect(n <= room() && sequence() % 2 == 0 && !c->changing, "header", 0);
    for (u64 b = 0; b < n; b++) follow(c->slots[b].head, seen, LIVE, b);
    follow(c->free, seen, 0, 0), follow(c->removed, seen, GONE, 0);
    for (u64 i = 0; i < n; i++) {
        struct slot *s = &c->slots[i];
        struct stat st;
        char name[257] = "";
        expect(s->state <= GONE && (s->state == LIVE) == (s->generation > 0), "state and generation", i);
        if (!s->state) continue;
        expect(s->length < 256 && s->crc == slot_crc(s) && s->file <= c->files, "crc or file number", i);
        bytes[s->state] += s->allocated;
        int named = s->state == LIVE || (s->file && !faccessat(dir, part_of(s->file, 0), F_OK, 0));
        if (s->state == GONE) bytes[LIVE] += named ? 0 : s->allocated;
        if (s->file) for (u32 part = !named; part <= s->parts; part++, here++, count++) {
            expect(!fstatat(dir, part_of(s->file, part), &st, AT_SYMLINK_NOFOLLOW), "file of another object", i);
            files = realloc(files, (count + 1) * sizeof *files);
            files[count].inode = st.st_ino, files[count].bytes = st.st_blocks * 512;
        }
        if (s->state != LIVE) continue;
        generations[objects++] = s->generation;
        memcpy(name, s->payload, s->length);
        expect(s->hash == hash(name) && s->length == strlen(name) && find(name) == s, "name and hash", i);
        expect(s->generation <= c->generation && s->owner <= c->owners, "generation or owner not given yet", i);
        if (!s->file) {
            static u8 copy[4096];
            int slots = copy_inline(s, copy);
            expect(slots && s->allocated == slots * 512u && crc32(0, copy, s->size) == s->data_crc, "inline object", i);
            follow(s->parts, seen, 0, 0);
            continue;
        }
        int file = open_object(s);
        expect(file >= 0 && !fstat(file, &st) && S_ISREG(st.st_mode) && (u64)st.st_size == s->size
               && (u64)st.st_blocks * 512 == s->allocated && (st.st_mode & 07777) == (c->mode & 0444), "file", i);
        close(file);
        bytes[LIVE] -= s->allocated;
    }
    qsort(files, count, sizeof *files, rising);
    for (int i = 0; i < count; i++)                    /* each file counts once */
        if (!i || files[i].inode != files[i - 1].inode) bytes[LIVE] += files[i].bytes;
    for (u64 i = 0; i < n; i++) expect(seen[i] == 1, "slot not reached exactly once", i);
    for (u64 i = n; i < room(); i++) expect(!memcmp(&c->slots[i], &(struct slot){0}, 104), "used, and not counted", i);
    expect(objects == c->objects && bytes[LIVE] == c->bytes, "counters", 0);
    qsort(generations, objects, 8, rising);
    for (u64 i = 1; i < objects; i++) expect(generations[i] != generations[i - 1], "generation given twice", i);
    for (u64 last = c->events, i = last > 256 ? last - 255 : 1; i <= last; i++) {
        struct event *e = &c->ring[i % 256];
        expect(e->number == i && e->kind >= 1 && e->kind <= 2 && e->length >= 1 && e->length <= 255 && e->generation >= 1
               && e->generation <= c->generation, "event", i);
    }
    DIR *entries = fdopendir(dir);
    for (struct dirent *e; (e = readdir(entries));)
        here -= strspn(e->d_name, "0123456789abcdef") == 16 && (!e->d_name[16] || e->d_name[16] == '-');
    expect(here == 0, "more or fewer files than objects", here);
    printf("objects %llu bytes %llu removed %llu events %llu\n", objects, bytes[LIVE] - bytes[GONE], bytes[GONE], c->events);
    end();
}

static int open_file(const char *name) {
    struct stat st, owner;
    int fd = openat(dir, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) fail(errno == ENOENT ? 3 : 1, "%s: %s", name, strerror(errno));
    TRY(fstat(fd, &st)), TRY(fstat(dir, &owner));
    if (!S_ISREG(st.st_mode) || st.st_uid != owner.st_uid) fail(1, "%s is no file of the store's owner", name);
    return fd;
}
static void open_store(const char *path) {
    char boot[40] = "", id[40] = "";
    dir = TRY(open(path, O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    control = open_file("control"), pins = open_file("pins"), commits = open_file("commit");
    c = shared = map(MAP_SHARED);
    check_control();
    if (memcmp(c->magic, "shmarrow", 8) || c->version != 3 || c->slot_size != 512 || c->slots_at != 90112)
        fail(1, "no store of version 3");
    TRY(read(TRY(open("/proc/sys/kernel/random/boot_id", O_RDONLY)), boot, 36));
    for (int i = 0; i < 16; i++) sprintf(id + strlen(id), "-%02x" + (i != 4 && i != 6 && i != 8 && i != 10), c->boot[i]);
    if (strcmp(boot, id)) fail(1, "the store is of an earlier boot, and is to be rebuilt first");
}
int main(int count, char **given) {
    const char *what = count > 2 ? given[1] : "";
    if (count > 2) open_store(given[2]);
    if (!strcmp(what, "check") && count == 3) check();
    else if (!strcmp(what, "rm") && count == 4) drop(given[3]);
    else if (!strcmp(what, "put") && count >= 5) put(given[3], given[4], count > 5);
    else if (!strcmp(what, "die") && count == 6) until = atoi(given[5]), put(given[3], given[4], 1);
    else if (!strcmp(what, "hold") && count == 5) attach(given[3]), puts("held"), fflush(stdout), usleep(atof(given[4]) * 1e6);
    else if (!strcmp(what, "get") && count == 4) {
        static char block[1 << 16];
        int file = attach(given[3]);
        for (ssize_t got; (got = TRY(read(file, block, sizeof block)));) fwrite(block, 1, got, stdout);
    } else if (!strcmp(what, "ls") && count == 3) {       /* what comes or goes meanwhile may be in it or not */
        for (u64 i = 0, n = c->buckets; i < n; i++) {
            struct slot s = c->slots[i];
            if (s.state == LIVE && s.crc == slot_crc(&s) && !is_expired(&s))
                printf("%llu %llu %.*s\n", s.generation, s.size, (int)s.length, s.payload);
        }
    } else
        fail(1, "usage: store ls|get|put|rm|hold|check|die DIR ...");
    return wrong;
}
