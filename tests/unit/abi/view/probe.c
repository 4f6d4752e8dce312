// One libc function per run, against the path given; prints what it saw, or errno's name. Plain C, as
// programs are.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

static int failed(void) {
  printf("%s\n", strerrorname_np(errno));
  return 1;
}

static int say(const char* text) {
  if (text == NULL) return failed();
  printf("%s\n", text);
  return 0;
}

static int do_glob(const char* pattern, int flags) {
  glob_t found;
  memset(&found, 0, sizeof found);
  const int result = glob(pattern, flags, NULL, &found);
  if (result != 0) return printf("glob %d\n", result), 1;
  for (size_t i = 0; i < found.gl_pathc; ++i) printf("%s\n", found.gl_pathv[i]);
  globfree(&found);
  return 0;
}

static int do_scandir(const char* path) {
  struct dirent** list = NULL;
  const int count = scandir(path, &list, NULL, alphasort);
  if (count < 0) return failed();
  for (int i = 0; i < count; ++i) {
    printf("%s ", list[i]->d_name);
    free(list[i]);
  }
  free(list);
  return printf("\n"), 0;
}

static int do_statx(const char* path) {
  struct statx status;
  if (statx(AT_FDCWD, path, 0, STATX_BASIC_STATS, &status) != 0) return failed();
  return printf("%s %o\n",
                S_ISCHR(status.stx_mode)   ? "char"
                : S_ISDIR(status.stx_mode) ? "dir"
                                           : "other",
                status.stx_mode & 0777),
         0;
}

static int do_fopen(const char* path) {
  char line[256];
  FILE* file = fopen(path, "r");
  if (file == NULL) return failed();
  const char* got = fgets(line, sizeof line, file);
  fclose(file);
  if (got != NULL) printf("%s", line);
  return 0;
}

static int visit(const char* path, const struct stat* status, int kind, struct FTW* place) {
  (void)status;
  printf("%d %d %s %s\n", place->level, kind, path, path + place->base);
  return 0;
}

static int visit_plain(const char* path, const struct stat* status, int kind) {
  (void)status;
  return printf("%d %s\n", kind, path), 0;
}

static int do_cwd(const char* path) {
  char exact[PATH_MAX];
  if (chdir(path) != 0) return failed();
  char* allocated = getcwd(NULL, 0);
  char* current = get_current_dir_name();
  if (allocated == NULL || current == NULL) return failed();
  const size_t length = strlen(allocated);
  const char* too_small = getcwd(exact, length) == NULL && errno == ERANGE ? "ERANGE" : "fits?";
  const char* fits = getcwd(exact, length + 1);
  printf("%s %s %s %s\n", allocated, current, too_small, fits == NULL ? "NULL" : fits);
  free(allocated);
  free(current);
  return 0;
}

// A descriptor that was opened through the view: its name, and files relative to it.
static int do_at(const char* path) {
  char name[PATH_MAX], link[64], start[4];
  const int fd = open(path, O_RDONLY | O_DIRECTORY);
  if (fd < 0) return failed();
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t length = readlink(link, name, sizeof name - 1);
  const ssize_t cut = readlink(link, start, sizeof start);
  if (length < 0) return failed();
  struct stat status;
  printf("%.*s %.*s %d %d %d\n", (int)length, name, (int)cut, start,
         fstatat(fd, "verbena0/fw_ver", &status, 0), faccessat(fd, "verbena0/none", R_OK, 0),
         faccessat(fd, "/dev/infiniband/uverbs0", R_OK | W_OK, 0));
  return 0;
}

static int do_create(const char* path) {
  const int fd = open(path, O_CREAT | O_WRONLY | O_EXCL, 0640);
  struct stat status;
  if (fd < 0 || fstat(fd, &status) != 0) return failed();
  return printf("%o\n", status.st_mode & 0777), 0;
}

static int do_others(const char* path) {
  struct statfs fs;
  struct statvfs vfs;
  const int fd = inotify_init1(IN_CLOEXEC);
  if (statfs(path, &fs) != 0 || statvfs(path, &vfs) != 0 || inotify_add_watch(fd, path, IN_MODIFY) < 0)
    return failed();
  if (euidaccess(path, R_OK) != 0 || faccessat(AT_FDCWD, path, R_OK, AT_EACCESS) != 0) return failed();
  return say("all");
}

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const char* what = argv[1];
  const char* path = argv[2];
  char buffer[PATH_MAX];
  umask(0);
  if (strcmp(what, "glob") == 0) return do_glob(path, 0);
  if (strcmp(what, "globmark") == 0) return do_glob(path, GLOB_MARK | GLOB_BRACE);
  if (strcmp(what, "scandir") == 0) return do_scandir(path);
  if (strcmp(what, "statx") == 0) return do_statx(path);
  if (strcmp(what, "fopen") == 0) return do_fopen(path);
  if (strcmp(what, "nftw") == 0) return nftw(path, visit, 8, FTW_PHYS);
  if (strcmp(what, "ftw") == 0) return ftw(path, visit_plain, 8);
  if (strcmp(what, "realpath") == 0) return say(realpath(path, NULL));
  if (strcmp(what, "realpathbuf") == 0)
    return realpath(path, buffer) == NULL ? (say(buffer), failed()) : say(buffer);
  if (strcmp(what, "canonicalize") == 0) return say(canonicalize_file_name(path));
  if (strcmp(what, "cwd") == 0) return do_cwd(path);
  if (strcmp(what, "at") == 0) return do_at(path);
  if (strcmp(what, "create") == 0) return do_create(path);
  if (strcmp(what, "others") == 0) return do_others(path);
  if (strcmp(what, "errno") == 0) {
    errno = 77;
    const int fd = open(path, O_RDONLY);
    return printf("%d %d\n", fd >= 0, errno), 0;
  }
  return 2;
}
