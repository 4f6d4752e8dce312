#include "abi/view/path_map.hpp"

#include <gtest/gtest.h>

#include <string>

namespace verbena::abi::view {
namespace {

// What the program's path becomes: "" where it passes.
std::string mapped(const char* path, std::string_view cwd = {}, std::string_view root = "/t") {
  if (!may_concern(path)) return "";
  char out[PATH_MAX];
  switch (map_in(root, cwd, path, out)) {
    case Mapping::kPass:
      return "";
    case Mapping::kTooLong:
      return "too long";
    case Mapping::kMapped:
      return out;
  }
  return "?";
}

struct Row {
  const char* path;
  const char* expected;
  const char* cwd = "";
};

TEST(PathMap, MapsWhatIsOursAndNothingElse) {
  constexpr Row kRows[] = {
      // each top, itself and below
      {"/sys/class/infiniband", "/t/sys/class/infiniband"},
      {"/sys/class/infiniband/", "/t/sys/class/infiniband/"},
      {"/sys/class/infiniband/verbena0/node_type", "/t/sys/class/infiniband/verbena0/node_type"},
      {"/sys/class/infiniband_verbs/abi_version", "/t/sys/class/infiniband_verbs/abi_version"},
      {"/sys/class/infiniband_mad/umad0", "/t/sys/class/infiniband_mad/umad0"},
      {"/sys/class/infiniband_cm", "/t/sys/class/infiniband_cm"},
      {"/sys/devices/virtual/verbena/verbena0", "/t/sys/devices/virtual/verbena/verbena0"},
      {"/dev/infiniband/uverbs0", "/t/dev/infiniband/uverbs0"},
      // neighbours
      {"/sys/class/infiniband_srp", ""},
      {"/sys/class/infiniban", ""},
      {"/sys/class/infinibandx/y", ""},
      {"/sys/class", ""},
      {"/sys/class/net/infiniband", ""},
      {"/dev/null", ""},
      {"/home/sys/class/infiniband", ""},
      {"/t/sys/class/infiniband", ""},
      {"/", ""},
      {"", ""},
      // spelt oddly
      {"//sys///class/infiniband", "/t/sys/class/infiniband"},
      {"/./sys/./class/./infiniband/./x", "/t/sys/class/infiniband/./x"},
      {"/sys/class/net/../infiniband/x", "/t/sys/class/infiniband/x"},
      {"/usr/../sys/class/infiniband", "/t/sys/class/infiniband"},
      {"/../../sys/class/infiniband", "/t/sys/class/infiniband"},
      {"/sys/class/infiniband/../net/lo", ""},
      {"/sys/class/infiniband/./..//net/lo", ""},
      {"/sys/class/infiniband/..", ""},
      {"/sys/class/infiniband/../infiniband_verbs/uverbs0", "/t/sys/class/infiniband_verbs/uverbs0"},
      // below a link ".." is the kernel's
      {"/sys/class/infiniband/verbena0/../x", "/t/sys/class/infiniband/verbena0/../x"},
      {"/sys/class/infiniband/...", "/t/sys/class/infiniband/..."},
      {"/sys/class/infiniband/..x", "/t/sys/class/infiniband/..x"},
      // relative
      {"infiniband", "/t/sys/class/infiniband", "/sys/class"},
      {"infiniband/verbena0", "/t/sys/class/infiniband/verbena0", "/sys/class"},
      {"./class/infiniband", "/t/sys/class/infiniband", "/sys"},
      {"sys/class/infiniband", "/t/sys/class/infiniband", "/"},
      {"../infiniband", "/t/sys/class/infiniband", "/sys/class/net"},
      {"infiniband", "", "/t/sys/class"},
      {"infiniband", "", "/home"},
      {"infiniband", "", "(unreachable)/sys/class"},
      {"verbena0", "/t/sys/class/infiniband/verbena0", "/sys/class/infiniband"},
  };
  for (const Row& row : kRows)
    EXPECT_EQ(mapped(row.path, row.cwd), row.expected) << row.path << " in " << row.cwd;
}

TEST(PathMap, NullIsNotOurs) { EXPECT_FALSE(may_concern(nullptr)); }

TEST(PathMap, LengthIsBounded) {
  const std::string top = "/dev/infiniband/";
  const std::string longest = top + std::string(PATH_MAX - 1 - 2 - top.size(), 'x');
  EXPECT_EQ(mapped(longest.c_str()), "/t" + longest);
  EXPECT_EQ(mapped((longest + "x").c_str()), "too long");
  EXPECT_EQ(mapped((top + std::string(3 * PATH_MAX, 'x')).c_str()), "too long");
  // Not ours, so the kernel's to refuse.
  EXPECT_EQ(mapped(("/sys/infiniband" + std::string(3 * PATH_MAX, 'x')).c_str()), "");
  EXPECT_EQ(mapped("infiniband", "/" + std::string(PATH_MAX, 'x')), "");
}

TEST(PathMap, HidesTheTreeOnlyAboveWhatItShows) {
  EXPECT_EQ(hidden_prefix("/t", "/t/sys/class/infiniband/verbena0"), 2U);
  EXPECT_EQ(hidden_prefix("/t", "/t/sys"), 2U);
  EXPECT_EQ(hidden_prefix("/t", "/t/dev/infiniband"), 2U);
  EXPECT_EQ(hidden_prefix("/t", "/t"), 0U);
  EXPECT_EQ(hidden_prefix("/t", "/t/dev"), 0U);
  EXPECT_EQ(hidden_prefix("/t", "/t/system"), 0U);
  EXPECT_EQ(hidden_prefix("/t", "/tt/sys"), 0U);
  EXPECT_EQ(hidden_prefix("/t", "/sys/class"), 0U);
  EXPECT_EQ(hidden_prefix("", "/sys/class"), 0U);
}

}  // namespace
}  // namespace verbena::abi::view
