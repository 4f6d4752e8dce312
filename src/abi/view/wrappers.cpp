// The functions that only need their path mapped.
#include <dirent.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>

#include <cstdarg>
#include <cstdint>
#include <cstdio>

#include "abi/view/view.hpp"

using verbena::abi::view::through;
using verbena::abi::view::through_at;

// ARGUMENTS are those of the real function, with `seen` in the place of `path`.
#define MAPS(R, NAME, PARAMETERS, ARGUMENTS)                                \
  VIEW_EXPORT(R, NAME, PARAMETERS) {                                        \
    VIEW_NEXT(NAME);                                                        \
    return through(path, [&](const char* seen) { return next ARGUMENTS; }); \
  }
#define MAPS_AT(R, NAME, PARAMETERS, ARGUMENTS)                                       \
  VIEW_EXPORT(R, NAME, PARAMETERS) {                                                  \
    VIEW_NEXT(NAME);                                                                  \
    return through_at(dirfd, path, [&](const char* seen) { return next ARGUMENTS; }); \
  }
#define MAPS_BOTH(HOW, R, NAME, NAME64, PARAMETERS, ARGUMENTS) \
  HOW(R, NAME, PARAMETERS, ARGUMENTS)                          \
  HOW(R, NAME64, PARAMETERS, ARGUMENTS)

// stat and its kin; the __x forms are what programs built before glibc 2.33 call.
MAPS_BOTH(MAPS, int, stat, stat64, (const char* path, void* status), (seen, status))
MAPS_BOTH(MAPS, int, lstat, lstat64, (const char* path, void* status), (seen, status))
MAPS_BOTH(MAPS_AT, int, fstatat, fstatat64, (int dirfd, const char* path, void* status, int flags),
          (dirfd, seen, status, flags))
MAPS_BOTH(MAPS, int, __xstat, __xstat64, (int version, const char* path, void* status),
          (version, seen, status))
MAPS_BOTH(MAPS, int, __lxstat, __lxstat64, (int version, const char* path, void* status),
          (version, seen, status))
MAPS_BOTH(MAPS_AT, int, __fxstatat, __fxstatat64,
          (int version, int dirfd, const char* path, void* status, int flags),
          (version, dirfd, seen, status, flags))
MAPS_AT(int, statx, (int dirfd, const char* path, int flags, unsigned mask, void* status),
        (dirfd, seen, flags, mask, status))
MAPS_BOTH(MAPS, int, statfs, statfs64, (const char* path, void* status), (seen, status))
MAPS_BOTH(MAPS, int, statvfs, statvfs64, (const char* path, void* status), (seen, status))
MAPS(long, pathconf, (const char* path, int name), (seen, name))

MAPS(int, access, (const char* path, int mode), (seen, mode))
MAPS(int, eaccess, (const char* path, int mode), (seen, mode))
MAPS(int, euidaccess, (const char* path, int mode), (seen, mode))
MAPS_AT(int, faccessat, (int dirfd, const char* path, int mode, int flags), (dirfd, seen, mode, flags))

// ls -l asks for labels and access control lists by name.
MAPS(ssize_t, getxattr, (const char* path, const char* name, void* value, size_t size),
     (seen, name, value, size))
MAPS(ssize_t, lgetxattr, (const char* path, const char* name, void* value, size_t size),
     (seen, name, value, size))
MAPS(ssize_t, listxattr, (const char* path, char* list, size_t size), (seen, list, size))
MAPS(ssize_t, llistxattr, (const char* path, char* list, size_t size), (seen, list, size))

MAPS_BOTH(MAPS, int, __open_2, __open64_2, (const char* path, int flags), (seen, flags))
MAPS_BOTH(MAPS_AT, int, __openat_2, __openat64_2, (int dirfd, const char* path, int flags),
          (dirfd, seen, flags))
MAPS_BOTH(MAPS, int, creat, creat64, (const char* path, mode_t mode), (seen, mode))
MAPS_BOTH(MAPS, FILE*, fopen, fopen64, (const char* path, const char* mode), (seen, mode))
MAPS_BOTH(MAPS, FILE*, freopen, freopen64, (const char* path, const char* mode, FILE* file),
          (seen, mode, file))
MAPS(DIR*, opendir, (const char* path), (seen))
MAPS(int, chdir, (const char* path), (seen))
MAPS(int, inotify_add_watch, (int fd, const char* path, uint32_t mask), (fd, seen, mask))

MAPS_BOTH(MAPS, int, scandir, scandir64, (const char* path, void* list, void* filter, void* order),
          (seen, list, filter, order))
MAPS_BOTH(MAPS_AT, int, scandirat, scandirat64,
          (int dirfd, const char* path, void* list, void* filter, void* order),
          (dirfd, seen, list, filter, order))

namespace {

bool has_mode(int flags) { return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE; }

}  // namespace

// The mode is read only where the caller had to give one.
#define OPENS(NAME)                                                                                  \
  VIEW_EXPORT(int, NAME, (const char* path, int flags, ...)) {                                       \
    VIEW_NEXT(NAME);                                                                                 \
    if (!has_mode(flags)) return through(path, [&](const char* seen) { return next(seen, flags); }); \
    va_list rest;                                                                                    \
    va_start(rest, flags);                                                                           \
    const mode_t mode = va_arg(rest, mode_t);                                                        \
    va_end(rest);                                                                                    \
    return through(path, [&](const char* seen) { return next(seen, flags, mode); });                 \
  }
#define OPENS_AT(NAME)                                                                                \
  VIEW_EXPORT(int, NAME, (int dirfd, const char* path, int flags, ...)) {                             \
    VIEW_NEXT(NAME);                                                                                  \
    if (!has_mode(flags))                                                                             \
      return through_at(dirfd, path, [&](const char* seen) { return next(dirfd, seen, flags); });     \
    va_list rest;                                                                                     \
    va_start(rest, flags);                                                                            \
    const mode_t mode = va_arg(rest, mode_t);                                                         \
    va_end(rest);                                                                                     \
    return through_at(dirfd, path, [&](const char* seen) { return next(dirfd, seen, flags, mode); }); \
  }
OPENS(open)
OPENS(open64)
OPENS(__open)
OPENS(__open64)
OPENS_AT(openat)
OPENS_AT(openat64)
