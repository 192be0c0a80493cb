/* Records what processes do to the files of one folder, in one order for all of them; see record.py.
 *
 * Loaded by LD_PRELOAD. POWER_CUTS_FOLDER is the folder, POWER_CUTS_LOG the log, and POWER_CUTS_LOCK a file with
 * a spinlock in memory that all processes share. Each call is made and logged under that lock, so the log has the
 * order in which the calls took effect. A sync is logged twice, before and after, and made without the lock.
 * What is missed here is found out: a replay of the whole log must give the files as they are.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define MOST_FILES 65536
#define MARKS "marks"
#define FIND(name, symbol) (real_##name = dlsym(RTLD_NEXT, symbol))

struct shared {
    int lock;
    uint64_t syncs;
};

struct record {
    uint32_t kind, length;
    uint64_t file, offset;
};

static struct shared *shared;
static pid_t self;
static const char *folder;
static size_t folder_length;
static int log_file = -1;
static uint64_t inode_of[MOST_FILES]; /* 0: not one of ours */
static char is_marks[MOST_FILES];

static int (*real_open)(const char *, int, ...);
static int (*real_close)(int), (*real_fsync)(int), (*real_fdatasync)(int);
static ssize_t (*real_write)(int, const void *, size_t);
static ssize_t (*real_pwrite)(int, const void *, size_t, off_t);
static int (*real_ftruncate)(int, off_t);
static int (*real_unlink)(const char *);
static int (*real_rename)(const char *, const char *), (*real_link)(const char *, const char *);

__attribute__((constructor)) static void start(void) {
    FIND(open, "open64"), FIND(close, "close"), FIND(write, "write"), FIND(pwrite, "pwrite64");
    FIND(ftruncate, "ftruncate64"), FIND(fsync, "fsync"), FIND(fdatasync, "fdatasync");
    FIND(unlink, "unlink"), FIND(rename, "rename"), FIND(link, "link");
    folder = getenv("POWER_CUTS_FOLDER");
    const char *log = getenv("POWER_CUTS_LOG"), *lock = getenv("POWER_CUTS_LOCK");
    if (!folder || !log || !lock) return;
    folder_length = strlen(folder);
    self = getpid();
    int file = real_open(lock, O_RDWR | O_CLOEXEC);
    log_file = real_open(log, O_WRONLY | O_APPEND | O_CLOEXEC);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (log_file < 0 || shared == MAP_FAILED) abort();
    real_close(file);
}

static void take(void) { while (__atomic_exchange_n(&shared->lock, 1, __ATOMIC_ACQUIRE)) sched_yield(); }

static void give(void) {
    int kept = errno;
    __atomic_store_n(&shared->lock, 0, __ATOMIC_RELEASE);
    errno = kept;
}

static void note(char kind, uint64_t file, uint64_t offset, const void *data, size_t length) {
    int kept = errno;
    struct record record = {(uint32_t)kind, (uint32_t)length, file, offset};
    struct iovec parts[] = {{&record, sizeof record}, {(void *)data, length}};
    if (writev(log_file, parts, 2) != (ssize_t)(sizeof record + length)) abort();
    errno = kept;
}

/* The name of a path within the folder; "." for the folder itself, NULL if it is elsewhere.
 * The index of the log is shared memory that nothing reads after a restart. */
static const char *name_of(const char *path) {
    if (!shared || strncmp(path, folder, folder_length)) return NULL;
    if (!path[folder_length]) return ".";
    size_t length = strlen(path);
    if (path[folder_length] != '/' || !strcmp(path + length - 4, "-shm")) return NULL;
    return path + folder_length + 1;
}

static int ours(int file) { return shared && file >= 0 && file < MOST_FILES && inode_of[file]; }

static int do_open(const char *path, int flags, mode_t mode) {
    const char *name = name_of(path);
    if (!name) return real_open(path, flags, mode);
    take();
    int made = (flags & O_CREAT) && access(path, F_OK);
    int file = real_open(path, flags, mode);
    struct stat found;
    if (file >= 0 && file < MOST_FILES && !fstat(file, &found)) {
        inode_of[file] = found.st_ino;
        is_marks[file] = !strcmp(name, MARKS);
        note('o', found.st_ino, made ? 1 : (flags & O_TRUNC) ? 2 : 0, name, strlen(name));
    }
    give();
    return file;
}

int open64(const char *path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0;
    va_end(more);
    return do_open(path, flags, mode);
}
int open(const char *, int, ...) __attribute__((alias("open64")));

int close(int file) {
    /* A child between vfork and exec shares this table. */
    if (ours(file) && getpid() == self) inode_of[file] = 0;
    return real_close(file);
}

ssize_t write(int file, const void *data, size_t length) {
    if (!ours(file)) return real_write(file, data, length);
    take();
    off_t offset = lseek(file, 0, fcntl(file, F_GETFL) & O_APPEND ? SEEK_END : SEEK_CUR);
    ssize_t written = real_write(file, data, length);
    if (written > 0) note(is_marks[file] ? 'm' : 'w', inode_of[file], offset, data, written);
    /* As if killed: no call of another thread is half done. The lock is given back by who started us. */
    if (is_marks[file] && length >= 3 && !memcmp(data, "die", 3)) _exit(9);
    give();
    return written;
}

ssize_t pwrite64(int file, const void *data, size_t length, off_t offset) {
    if (!ours(file)) return real_pwrite(file, data, length, offset);
    take();
    ssize_t written = real_pwrite(file, data, length, offset);
    if (written > 0) note('w', inode_of[file], offset, data, written);
    give();
    return written;
}
ssize_t pwrite(int, const void *, size_t, off_t) __attribute__((alias("pwrite64")));

int ftruncate64(int file, off_t length) {
    if (!ours(file)) return real_ftruncate(file, length);
    take();
    int failed = real_ftruncate(file, length);
    if (!failed) note('t', inode_of[file], length, NULL, 0);
    give();
    return failed;
}
int ftruncate(int, off_t) __attribute__((alias("ftruncate64")));

/* What was written before the first note is on the disk at the second. */
static int do_sync(int file, int (*real)(int)) {
    if (!ours(file)) return real(file);
    take();
    uint64_t number = shared->syncs++;
    note('s', inode_of[file], number, NULL, 0);
    give();
    int failed = real(file);
    take();
    if (!failed) note('S', inode_of[file], number, NULL, 0);
    give();
    return failed;
}
int fsync(int file) { return do_sync(file, real_fsync); }
int fdatasync(int file) { return do_sync(file, real_fdatasync); }

int unlink(const char *path) {
    const char *name = name_of(path);
    if (!name) return real_unlink(path);
    take();
    int failed = real_unlink(path);
    if (!failed) note('u', 0, 0, name, strlen(name));
    give();
    return failed;
}

static int do_names(char kind, int (*real)(const char *, const char *), const char *from, const char *to) {
    const char *first = name_of(from), *second = name_of(to);
    if (!first || !second) return real(from, to);
    take();
    int failed = real(from, to);
    char both[2048];
    int length = snprintf(both, sizeof both, "%s%c%s", first, 0, second);
    if (length >= (int)sizeof both) abort();
    if (!failed) note(kind, 0, 0, both, length);
    give();
    return failed;
}
int rename(const char *from, const char *to) { return do_names('r', real_rename, from, to); }
int link(const char *from, const char *to) { return do_names('l', real_link, from, to); }
