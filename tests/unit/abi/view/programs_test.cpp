// Programs nobody here wrote, under the preload, against a hand-made tree.
#include <gtest/gtest.h>
#include <unistd.h>

#include "hand_made_tree.hpp"

namespace verbena::abi::view {
namespace {

class ViewPrograms : public ::testing::Test {
 protected:
  [[nodiscard]] std::string output(const std::string& command) const { return tree_.run(command).output; }
  [[nodiscard]] bool succeeds(const std::string& command) const { return tree_.run(command).status == 0; }
  [[nodiscard]] std::string python(const std::string& code) const {
    return output("/usr/bin/python3 -c \"import os, glob; " + code + "\"");
  }
  HandMadeTree tree_;
};

TEST_F(ViewPrograms, Coreutils) {
  EXPECT_EQ(output("ls /sys/class/infiniband"), "verbena0\n");
  EXPECT_EQ(output("cd /sys/class && ls infiniband"), "verbena0\n");
  const std::string listed = output("ls -l /sys/class/infiniband/");
  EXPECT_NE(listed.find("verbena0 -> ../../devices/virtual/verbena/verbena0\n"), std::string::npos) << listed;
  EXPECT_EQ(listed.find("cannot"), std::string::npos) << listed;
  EXPECT_EQ(output("ls -l /sys/class/infiniband/verbena0/fw_ver | cut -c1-10"), "-r--r--r--\n");
  EXPECT_EQ(output("cat /sys/class/infiniband/verbena0/ports/1/state"), "4: ACTIVE\n");
  EXPECT_EQ(output("readlink -f /sys/class/infiniband/verbena0"), "/sys/devices/virtual/verbena/verbena0\n");
  EXPECT_EQ(output("readlink /sys/class/infiniband/verbena0"), "../../devices/virtual/verbena/verbena0\n");
  EXPECT_EQ(output("realpath /sys/class/infiniband/verbena0/ports"),
            "/sys/devices/virtual/verbena/verbena0/ports\n");
  EXPECT_EQ(output("stat -c %F /sys/class/infiniband/verbena0"), "symbolic link\n");
  EXPECT_EQ(output("stat -L -c %F /dev/infiniband/uverbs0"), "character special file\n");
  EXPECT_EQ(output("cat /sys/class/infiniband/mlx5_0/fw_ver"),
            "cat: /sys/class/infiniband/mlx5_0/fw_ver: No such file or directory\n");
}

TEST_F(ViewPrograms, Find) {
  EXPECT_EQ(output("find /sys/class/infiniband -mindepth 1"), "/sys/class/infiniband/verbena0\n");
  EXPECT_EQ(output("find -L /sys/class/infiniband -name 0 -path '*types*'"),
            "/sys/class/infiniband/verbena0/ports/1/gid_attrs/types/0\n");
  EXPECT_EQ(output("find /dev/infiniband -type l"), "/dev/infiniband/uverbs0\n");
}

TEST_F(ViewPrograms, Shells) {
  for (const std::string shell : {"dash", "bash"}) {
    const auto said = [&](const std::string& script) { return output(shell + " -c '" + script + "'"); };
    EXPECT_EQ(said("cd /sys/class/infiniband && for d in *; do echo $d; done; pwd; cd ..; pwd"),
              "verbena0\n/sys/class/infiniband\n/sys/class\n");
    EXPECT_EQ(said("echo /sys/class/infiniband/*/ports/*/gids/*"),
              "/sys/class/infiniband/verbena0/ports/1/gids/0\n");
    EXPECT_EQ(said("cd -P /sys/class/infiniband/verbena0 && pwd"), "/sys/devices/virtual/verbena/verbena0\n");
    EXPECT_EQ(said("cd /sys/class/infiniband/verbena0 && cat ports/1/link_layer && pwd -P"),
              "Ethernet\n/sys/devices/virtual/verbena/verbena0\n");
    EXPECT_EQ(said("read x < /sys/class/infiniband/verbena0/ports/1/rate; echo $x"), "100 Gb/sec (4X EDR)\n");
    EXPECT_EQ(said("test -r /sys/class/infiniband/verbena0/ports/1/lid && echo yes"), "yes\n");
    EXPECT_EQ(said("test -c /dev/infiniband/uverbs0 && test -w /dev/infiniband/uverbs0 && echo yes"),
              "yes\n");
    EXPECT_EQ(said("test -e /sys/class/infiniband/mlx5_0 || echo no"), "no\n");
  }
  EXPECT_EQ(output("bash -O globstar -c 'echo /sys/class/infiniband/verbena0/**/types/*'"),
            "/sys/class/infiniband/verbena0/ports/1/gid_attrs/types/0\n");
}

TEST_F(ViewPrograms, Python) {
  EXPECT_EQ(python("print(os.listdir('/sys/class/infiniband'))"), "['verbena0']\n");
  EXPECT_EQ(python("print(glob.glob('/sys/class/infiniband/*/ports/*/lid'))"),
            "['/sys/class/infiniband/verbena0/ports/1/lid']\n");
  EXPECT_EQ(python("print(os.path.realpath('/sys/class/infiniband/verbena0'))"),
            "/sys/devices/virtual/verbena/verbena0\n");
  EXPECT_EQ(python("print(open('/sys/class/infiniband/verbena0/node_type').read().strip())"), "1: CA\n");
  EXPECT_EQ(python("os.chdir('/sys/class/infiniband'); print(os.getcwd(), os.path.exists('verbena0'))"),
            "/sys/class/infiniband True\n");
  EXPECT_EQ(python("print(os.access('/dev/infiniband/uverbs0', os.R_OK | os.W_OK))"), "True\n");
  EXPECT_EQ(python("print(sum(len(f) for _, _, f in os.walk('/sys/devices/virtual/verbena')) > 10)"),
            "True\n");
}

TEST_F(ViewPrograms, TheRestOfTheHostIsUntouched) {
  EXPECT_EQ(output("ls /sys/class/net"), run_shell("LC_ALL=C", "ls /sys/class/net").output);
  EXPECT_EQ(output("cat /sys/class/net/lo/mtu"), run_shell("LC_ALL=C", "cat /sys/class/net/lo/mtu").output);
  EXPECT_EQ(output("echo x > /dev/null && pwd"), run_shell("LC_ALL=C", "pwd").output);
}

TEST_F(ViewPrograms, WithoutAViewEverythingPasses) {
  const std::string plain = run_shell("LC_ALL=C", "ls /sys/class/infiniband; readlink /proc/self/cwd").output;
  for (const char* setting :
       {"-u VERBENA_VIEW", "VERBENA_VIEW=", "VERBENA_VIEW=relative/tree", "VERBENA_VIEW=/"})
    EXPECT_EQ(run_shell(std::string(setting) + " LC_ALL=C LD_PRELOAD=" VIEW_LIBRARY,
                        "ls /sys/class/infiniband; readlink /proc/self/cwd")
                  .output,
              plain)
        << setting;
}

TEST_F(ViewPrograms, ATreeThatIsNotThereHidesAllTheSame) {
  EXPECT_EQ(tree_.run("ls /sys/class/infiniband", "VERBENA_VIEW=/nonexistent").output,
            "ls: cannot access '/sys/class/infiniband': No such file or directory\n");
}

TEST_F(ViewPrograms, WritingIsRefusedAsTheTreeSays) {
  const std::string write = "echo 1 > /sys/class/infiniband/verbena0/node_desc";
  const std::string create = "echo 1 > /sys/class/infiniband/new";
  if (geteuid() != 0) {
    EXPECT_NE(tree_.run(write).output.find("Permission denied"), std::string::npos);
    return;
  }
  // Root may write anywhere: ask as nobody, who may not be able to read the build directory.
  std::filesystem::copy_file(VIEW_LIBRARY, tree_.top() + "/view.so");
  const std::string variables =
      "VERBENA_VIEW=" + tree_.top() + " LD_PRELOAD=" + tree_.top() + "/view.so LC_ALL=C ";
  const std::string nobody = "setpriv --reuid 65534 --regid 65534 --clear-groups sh -c ";
  for (const std::string& command : {write, create}) {
    const Outcome outcome = run_shell(variables, nobody + "'" + command + "'");
    EXPECT_NE(outcome.output.find("Permission denied"), std::string::npos) << outcome.output;
  }
  EXPECT_EQ(run_shell(variables, nobody + "'cat /sys/class/infiniband/verbena0/node_desc'").output,
            "verbena0\n");
}

class ViewDiagnostics : public ViewPrograms {
 protected:
  void SetUp() override {
    if (access("/usr/sbin/ibstat", X_OK) != 0) GTEST_SKIP() << "infiniband-diags isn't installed";
  }
};

TEST_F(ViewDiagnostics, Ibstat) {
  EXPECT_EQ(output("/usr/sbin/ibstat -l"), "verbena0\n");
  EXPECT_EQ(
      output("/usr/sbin/ibstat"),
      "CA 'verbena0'\n\tCA type: verbena\n\tNumber of ports: 1\n\tFirmware version: 0.1.0\n"
      "\tHardware version: 0x0\n\tNode GUID: 0x020000fffe000001\n\tSystem image GUID: 0x020000fffe000001\n"
      "\tPort 1:\n\t\tState: Active\n\t\tPhysical state: LinkUp\n\t\tRate: 100\n\t\tBase lid: 0\n\t\tLMC: 0\n"
      "\t\tSM lid: 0\n\t\tCapability mask: 0x00010000\n\t\tPort GUID: 0x0000ffff7f000001\n"
      "\t\tLink layer: Ethernet\n");
}

TEST_F(ViewDiagnostics, Ibstatus) {
  for (const std::string command : {"/usr/sbin/ibstatus", "/usr/sbin/ibstatus verbena0:1"})
    EXPECT_EQ(
        output(command),
        "Infiniband device 'verbena0' port 1 status:\n"
        "\tdefault gid:\t 0000:0000:0000:0000:0000:ffff:7f00:0001\n\tbase lid:\t 0x0\n\tsm lid:\t\t 0x0\n"
        "\tstate:\t\t 4: ACTIVE\n\tphys state:\t 5: LinkUp\n\trate:\t\t 100 Gb/sec (4X EDR)\n"
        "\tlink_layer:\t Ethernet\n\n");
}

}  // namespace
}  // namespace verbena::abi::view
