// The functions whose answers hold paths, or that walk directories inside libc.
#include <dirent.h>
#include <ftw.h>
#include <glob.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "abi/view/view.hpp"

using verbena::abi::view::hidden_prefix;
using verbena::abi::view::refusal;
using verbena::abi::view::root;
using verbena::abi::view::through;
using verbena::abi::view::through_at;

namespace {

char* hide_root(char* path) {
  const std::size_t hidden = path == nullptr ? 0 : hidden_prefix(path);
  if (hidden != 0) std::memmove(path, path + hidden, std::strlen(path + hidden) + 1);
  return path;
}

char* hide_root_of_result(char* result, char* buffer) {
  // Where a part is missing, glibc leaves the name of that part in the buffer.
  if (result == nullptr && buffer != nullptr && (errno == ENOENT || errno == EACCES)) hide_root(buffer);
  return hide_root(result);
}

// `again` reads the link once more, into a buffer that can't have cut it: what is hidden makes room.
template <typename Again>
ssize_t hide_root_of_link(char* buffer, std::size_t size, ssize_t length, Again again) {
  if (length <= 0 || buffer[0] != '/' || root().empty()) return length;
  char whole[PATH_MAX];
  const int saved = errno;
  const ssize_t whole_length = again(whole, sizeof whole);
  errno = saved;
  if (whole_length <= 0) return length;
  const std::string_view target(whole, static_cast<std::size_t>(whole_length));
  const std::size_t hidden = hidden_prefix(target);
  if (hidden == 0) return length;
  const std::size_t left = target.size() - hidden;
  const std::size_t fits = left < size ? left : size;
  std::memcpy(buffer, whole + hidden, fits);
  return static_cast<ssize_t>(fits);
}

// What getcwd(3) does with its two arguments, once the name is known.
char* give_cwd(std::string_view name, char* buffer, std::size_t size) {
  if (buffer != nullptr && size == 0) return refusal<char*>(EINVAL);
  if (size != 0 && name.size() >= size) return refusal<char*>(ERANGE);
  if (buffer == nullptr) buffer = static_cast<char*>(std::malloc(size != 0 ? size : name.size() + 1));
  if (buffer == nullptr) return nullptr;
  std::memcpy(buffer, name.data(), name.size());
  buffer[name.size()] = '\0';
  return buffer;
}

// Libc's own walk with our functions, so that what it finds has the names that the caller asked for.
template <typename Glob, typename Entry, typename Status, typename Next>
int glob_in_view(const char* pattern, int flags, int (*on_error)(const char*, int), Glob* found,
                 Entry* (*read)(DIR*), int (*status)(const char*, Status*),
                 int (*link_status)(const char*, Status*), Next next) {
  if (root().empty() || found == nullptr || (flags & GLOB_ALTDIRFUNC) != 0)
    return next(pattern, flags, on_error, found);
  Glob hooks;
  std::memcpy(&hooks, found, sizeof hooks);
  found->gl_opendir = [](const char* name) -> void* { return opendir(name); };
  found->gl_readdir = reinterpret_cast<Entry* (*)(void*)>(read);
  found->gl_closedir = [](void* directory) { closedir(static_cast<DIR*>(directory)); };
  found->gl_stat = status;
  found->gl_lstat = link_status;
  const int result = next(pattern, flags | GLOB_ALTDIRFUNC, on_error, found);
  found->gl_flags &= ~GLOB_ALTDIRFUNC;
  found->gl_opendir = hooks.gl_opendir;
  found->gl_readdir = hooks.gl_readdir;
  found->gl_closedir = hooks.gl_closedir;
  found->gl_stat = hooks.gl_stat;
  found->gl_lstat = hooks.gl_lstat;
  return result;
}

// A walk's callback takes no argument of ours, so the program's waits here; a callback may walk in turn.
template <typename Visit>
class Walk {
 public:
  explicit Walk(Visit visit) : outer_(current_) { current_ = visit; }
  ~Walk() { current_ = outer_; }
  Walk(const Walk&) = delete;
  Walk& operator=(const Walk&) = delete;

  template <typename Status>
  static int visit_ftw(const char* path, const Status* status, int kind) {
    return current_(path + hidden_prefix(path), status, kind);
  }
  template <typename Status>
  static int visit_nftw(const char* path, const Status* status, int kind, FTW* place) {
    const std::size_t hidden = hidden_prefix(path);
    FTW shown = *place;
    shown.base -= static_cast<int>(hidden);
    return current_(path + hidden, status, kind, &shown);
  }

 private:
  Visit outer_;
  __attribute__((tls_model("initial-exec"))) static inline constinit thread_local Visit current_ = nullptr;
};

template <typename Visit, typename Next>
int walk_in_view(const char* path, Visit visit, Visit showing, Next next) {
  return through(path, [&](const char* seen) {
    if (seen == path) return next(seen, visit);
    const Walk<Visit> walk(visit);
    return next(seen, showing);
  });
}

template <typename Status>
using VisitFtw = int (*)(const char*, const Status*, int);
template <typename Status>
using VisitNftw = int (*)(const char*, const Status*, int, FTW*);

}  // namespace

VIEW_EXPORT(char*, realpath, (const char* path, char* buffer)) {
  VIEW_NEXT(realpath);
  return hide_root_of_result(through(path, [&](const char* seen) { return next(seen, buffer); }), buffer);
}
VIEW_EXPORT(char*, __realpath_chk, (const char* path, char* buffer, size_t size)) {
  VIEW_NEXT(__realpath_chk);
  return hide_root_of_result(through(path, [&](const char* seen) { return next(seen, buffer, size); }),
                             buffer);
}
VIEW_EXPORT(char*, canonicalize_file_name, (const char* path)) {
  VIEW_NEXT(canonicalize_file_name);
  return hide_root(through(path, [&](const char* seen) { return next(seen); }));
}

VIEW_EXPORT(ssize_t, readlink, (const char* path, char* buffer, size_t size)) {
  VIEW_NEXT(readlink);
  return through(path, [&](const char* seen) {
    return hide_root_of_link(buffer, size, next(seen, buffer, size),
                             [&](char* whole, size_t room) { return next(seen, whole, room); });
  });
}
VIEW_EXPORT(ssize_t, __readlink_chk, (const char* path, char* buffer, size_t size, size_t limit)) {
  VIEW_NEXT(__readlink_chk);
  return through(path, [&](const char* seen) {
    return hide_root_of_link(buffer, size, next(seen, buffer, size, limit),
                             [&](char* whole, size_t room) { return next(seen, whole, room, room); });
  });
}
VIEW_EXPORT(ssize_t, readlinkat, (int dirfd, const char* path, char* buffer, size_t size)) {
  VIEW_NEXT(readlinkat);
  return through_at(dirfd, path, [&](const char* seen) {
    return hide_root_of_link(buffer, size, next(dirfd, seen, buffer, size),
                             [&](char* whole, size_t room) { return next(dirfd, seen, whole, room); });
  });
}
VIEW_EXPORT(ssize_t, __readlinkat_chk,
            (int dirfd, const char* path, char* buffer, size_t size, size_t limit)) {
  VIEW_NEXT(__readlinkat_chk);
  return through_at(dirfd, path, [&](const char* seen) {
    return hide_root_of_link(buffer, size, next(dirfd, seen, buffer, size, limit),
                             [&](char* whole, size_t room) { return next(dirfd, seen, whole, room, room); });
  });
}

VIEW_EXPORT(char*, getcwd, (char* buffer, size_t size)) {
  VIEW_NEXT(getcwd);
  char whole[PATH_MAX];
  const int saved = errno;
  const bool known = !root().empty() && next(whole, sizeof whole) != nullptr;
  errno = saved;
  const std::size_t hidden = known ? hidden_prefix(whole) : 0;
  return hidden == 0 ? next(buffer, size) : give_cwd(whole + hidden, buffer, size);
}
VIEW_EXPORT(char*, __getcwd_chk, (char* buffer, size_t size, size_t limit)) {
  VIEW_NEXT(__getcwd_chk);
  return size > limit ? next(buffer, size, limit) : view_getcwd(buffer, size);
}
VIEW_EXPORT(char*, getwd, (char* buffer)) {
  VIEW_NEXT(getwd);
  return hide_root(next(buffer));
}
VIEW_EXPORT(char*, __getwd_chk, (char* buffer, size_t size)) {
  VIEW_NEXT(__getwd_chk);
  return hide_root(next(buffer, size));
}
VIEW_EXPORT(char*, get_current_dir_name, ()) {
  VIEW_NEXT(get_current_dir_name);
  return hide_root(next());
}

VIEW_EXPORT(int, glob, (const char* pattern, int flags, int (*on_error)(const char*, int), glob_t* found)) {
  VIEW_NEXT(glob);
  return glob_in_view<glob_t, dirent, struct stat>(pattern, flags, on_error, found, readdir, ::stat, ::lstat,
                                                   next);
}
VIEW_EXPORT(int, glob64,
            (const char* pattern, int flags, int (*on_error)(const char*, int), glob64_t* found)) {
  VIEW_NEXT(glob64);
  return glob_in_view<glob64_t, dirent64, struct stat64>(pattern, flags, on_error, found, readdir64, ::stat64,
                                                         ::lstat64, next);
}

VIEW_EXPORT(int, ftw, (const char* path, VisitFtw<struct stat> visit, int fds)) {
  VIEW_NEXT(ftw);
  return walk_in_view<VisitFtw<struct stat>>(
      path, visit, Walk<VisitFtw<struct stat>>::visit_ftw<struct stat>,
      [&](const char* seen, auto showing) { return next(seen, showing, fds); });
}
VIEW_EXPORT(int, ftw64, (const char* path, VisitFtw<struct stat64> visit, int fds)) {
  VIEW_NEXT(ftw64);
  return walk_in_view<VisitFtw<struct stat64>>(
      path, visit, Walk<VisitFtw<struct stat64>>::visit_ftw<struct stat64>,
      [&](const char* seen, auto showing) { return next(seen, showing, fds); });
}
VIEW_EXPORT(int, nftw, (const char* path, VisitNftw<struct stat> visit, int fds, int flags)) {
  VIEW_NEXT(nftw);
  return walk_in_view<VisitNftw<struct stat>>(
      path, visit, Walk<VisitNftw<struct stat>>::visit_nftw<struct stat>,
      [&](const char* seen, auto showing) { return next(seen, showing, fds, flags); });
}
VIEW_EXPORT(int, nftw64, (const char* path, VisitNftw<struct stat64> visit, int fds, int flags)) {
  VIEW_NEXT(nftw64);
  return walk_in_view<VisitNftw<struct stat64>>(
      path, visit, Walk<VisitNftw<struct stat64>>::visit_nftw<struct stat64>,
      [&](const char* seen, auto showing) { return next(seen, showing, fds, flags); });
}
