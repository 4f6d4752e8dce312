#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "net/capture_link.hpp"
#include "net/fault_link.hpp"
#include "net/ip_headers.hpp"
#include "net/memory_link.hpp"
#include "net/trace_link.hpp"
#include "wire.hpp"

namespace verbena::net {
namespace {

class Capture : public testing::Test {
 protected:
  Capture() { std::filesystem::create_directories(directory_); }
  ~Capture() override { std::filesystem::remove_all(directory_); }
  [[nodiscard]] std::string path() const { return directory_ / "packets.pcapng"; }

  // What tshark says of the file, one line a packet; without what it says on stderr.
  [[nodiscard]] std::vector<std::string> read(const std::string& arguments) const {
    std::istringstream out(support::shell("(HOME=" + directory_.string() + " tshark -n -r " + path() + " " +
                                          arguments + " 2>/dev/null)")
                               .text);
    std::vector<std::string> lines;
    for (std::string line; std::getline(out, line);) lines.push_back(line);
    return lines;
  }
  [[nodiscard]] static bool have_tshark() { return support::shell("command -v tshark").status == 0; }

  const std::filesystem::path directory_ =
      std::filesystem::temp_directory_path() / ("verbena-capture-" + std::to_string(::getpid()));
};

Route way4() { return {.from = ipv4("10.0.0.1"), .to = ipv4("10.0.0.2"), .slot = {1}, .recognised = true}; }
Route way6() { return {.from = ipv6("fd00::1"), .to = ipv6("fd00::2"), .slot = {1}, .recognised = true}; }

TEST_F(Capture, WiresharkReadsIt) {
  if (!have_tshark()) GTEST_SKIP() << "needs tshark";
  MemoryNetwork network;
  const auto left4 = network.attach(way4().from, {1}), right4 = network.attach(way4().to, {1});
  const auto left6 = network.attach(way6().from, {1}), right6 = network.attach(way6().to, {1});
  const auto file = *Pcapng::create(path());
  CaptureLink out4(*left4, *file), in4(*right4, *file), out6(*left6, *file), in6(*right6, *file);
  const auto send = [](Link& link, const Route& route) {
    Transmitter transmitter(link);
    for (uint32_t i = 0; i < 5; ++i) transmit(transmitter, route, packet_of(1, i, i == 4 ? 64 : 400));
    transmitter.flush();
  };
  send(out4, way4());
  send(out6, way6());
  Keeper keeper;
  ASSERT_TRUE(keeper.take(in4, 5));
  ASSERT_TRUE(keeper.take(in6, 10));
  EXPECT_EQ(20u, file->packets());
  EXPECT_EQ(0u, file->missing());

  const std::string fields =
      "-o ip.check_checksum:TRUE -o udp.check_checksum:TRUE -T fields -e frame.packet_flags_direction -e "
      "ip.id "
      "-e ip.src -e ipv6.dst -e udp.dstport -e infiniband.bth.opcode -e infiniband.bth.psn -e frame.len "
      "-e infiniband.invariant.crc";
  const auto lines = read(fields);
  ASSERT_EQ(20u, lines.size()) << support::shell("tshark -r " + path()).text;
  // Outgoing over IPv4: the ID is the place in the run.
  EXPECT_EQ(0u, lines[3].find("0x00000002\t0x0003\t10.0.0.1\t\t4791\t36\t3\t428\t0x")) << lines[3];
  EXPECT_EQ(0u, lines[4].find("0x00000002\t0x0004\t10.0.0.1\t\t4791\t36\t4\t92\t0x")) << lines[4];
  EXPECT_EQ(0u, lines[5].find("0x00000002\t\t\tfd00::2\t4791\t36\t0\t448\t0x")) << lines[5];
  EXPECT_EQ(0u, lines[13].find("0x00000001\t0x0003\t10.0.0.1\t\t4791\t36\t3\t428\t0x")) << lines[13];
  EXPECT_EQ(0u, lines[15].find("0x00000001\t\t\tfd00::2\t4791\t36\t0\t448\t0x")) << lines[15];
  const std::string checks = "-o ip.check_checksum:TRUE -o udp.check_checksum:TRUE ";
  for (const auto& line : read(checks + "-Y '_ws.malformed || ip.checksum.bad || udp.checksum.bad || "
                                        "_ws.expert.severity >= 0x600000'"))
    ADD_FAILURE() << line;
}

TEST_F(Capture, IdsAreThoseOfTheIcrcWhateverCutTheRuns) {
  if (!have_tshark()) GTEST_SKIP() << "needs tshark";
  MemoryNetwork network;
  const auto left = network.attach(way4().from, {1});
  const auto file = *Pcapng::create(path());
  CaptureLink capture(*left, *file);
  FaultLink faulty(capture, 1);
  faulty.set_outgoing({.lost = 0b10});
  Transmitter transmitter(faulty);
  for (uint32_t i = 0; i < 4; ++i) transmit(transmitter, way4(), packet_of(1, i, 400));
  transmitter.flush();
  EXPECT_EQ((std::vector<std::string>{"0x0000\t0", "0x0002\t2", "0x0003\t3"}),
            read("-T fields -e ip.id -e infiniband.bth.psn"));
}

TEST_F(Capture, DamagedPacketsAndRuntsAreWrittenToo) {
  MemoryNetwork network;
  const auto left = network.attach(way4().from, {1});
  const auto file = *Pcapng::create(path());
  CaptureLink capture(*left, *file);
  for (const size_t bytes : {1, 3, 4, 15, 16, 17, 1000})
    for (const Route& route : {way4(), way6()})
      EXPECT_TRUE(capture.send({route, static_cast<uint16_t>(bytes), Bytes(bytes, std::byte{0x5a})}));
  EXPECT_EQ(14u, file->packets());
  EXPECT_TRUE(!have_tshark() || read("-T fields -e frame.number").size() == 14);
}

TEST_F(Capture, AnyIdIsFound) {
  Bytes packet = packet_of(1, 7, 300);
  const roce::Flow flow{way4().from.bytes, way4().to.bytes, 50'000};
  for (const unsigned id : {0u, 1u, 63u, 64u, 0x1234u, 0x8000u, 0xffffu}) {
    roce::append_icrc(flow, static_cast<uint16_t>(id), packet);
    EXPECT_EQ(id, find_id(flow, 0, packet));
    EXPECT_EQ(id, find_id(flow, 5, packet));
  }
  packet[20] ^= std::byte{1};
  EXPECT_EQ(5, find_id(flow, 5, packet)) << "none fits";
}

TEST_F(Capture, EndsAtItsLimitWithAWholePacket) {
  MemoryNetwork network;
  const auto left = network.attach(way4().from, {1});
  const auto file = *Pcapng::create(path(), 2'000);
  CaptureLink capture(*left, *file);
  for (uint32_t i = 0; i < 20; ++i) EXPECT_TRUE(capture.send({way4(), 400, packet_of(1, i, 400)}));
  EXPECT_EQ(20u, file->packets() + file->missing());
  EXPECT_GT(file->packets(), 2u);
  EXPECT_LE(std::filesystem::file_size(path()), 2'000u);
  EXPECT_TRUE(!have_tshark() || read("-T fields -e frame.number").size() == file->packets());
}

// `ulimit -f` kills by a signal where writes would fail; here it must not.
TEST_F(Capture, AFileSizeLimitEndsItQuietly) {
  const pid_t child = ::fork();
  if (child == 0) {
    auto file = *Pcapng::create(path());
    const rlimit limit{1'000, 1'000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const Bytes packet(400);
    for (int i = 0; i < 10; ++i) {
      file->add(Direction::kOut, 0, {}, packet);
      file->flush();
    }
    ::_exit(file->packets() > 0 && file->missing() > 0 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(child, ::waitpid(child, &status, 0));
  EXPECT_EQ(0, status);
}

TEST_F(Capture, NeedsAFileThatItCanWrite) {
  EXPECT_EQ(ENOENT, Pcapng::create(directory_ / "no" / "such").error().code);
  EXPECT_EQ(EINVAL, Pcapng::create("/dev/null").error().code);
  ASSERT_EQ(0, ::mkfifo(path().c_str(), 0600));
  EXPECT_EQ(ENXIO, Pcapng::create(path()).error().code);
}

TEST_F(Capture, IsForItsUserAlone) {
  const auto file = *Pcapng::create(path());
  struct stat st {};
  ASSERT_EQ(0, ::stat(path().c_str(), &st));
  EXPECT_EQ(0600u, st.st_mode & 0777);
}

TEST(Trace, TellsOfEachPacketInOneLine) {
  MemoryNetwork network;
  const auto left = network.attach(way4().from, {1});
  const auto right = network.attach(way4().to, {1});
  std::vector<std::string> lines;
  const auto tell = [&](std::string_view line) { lines.emplace_back(line); };
  TraceLink out(*left, tell), in(*right, tell);
  Transmitter transmitter(out);
  for (uint32_t i = 0; i < 2; ++i) transmit(transmitter, way4(), packet_of(1, i, 40));
  transmitter.flush();
  Keeper keeper;
  ASSERT_TRUE(keeper.take(in, 2));
  EXPECT_EQ((std::vector<std::string>{
                "out 10.0.0.1 > 10.0.0.2 UC SendOnly qp 0x011234 psn 0 24 B",
                "out 10.0.0.1 > 10.0.0.2 UC SendOnly qp 0x011234 psn 1 24 B",
                "in  10.0.0.1 > 10.0.0.2 UC SendOnly qp 0x011234 psn 0 24 B",
                "in  10.0.0.1 > 10.0.0.2 UC SendOnly qp 0x011234 psn 1 24 B",
            }),
            lines);
}

TEST(Trace, SaysWhyAPacketIsNone) {
  EXPECT_EQ("too_short, 3 B", packet_line(Bytes(3)));
  EXPECT_EQ("too_short, 10 B", packet_line(Bytes(10)));
  Bytes unknown(32);
  unknown[0] = std::byte{0xff};
  EXPECT_EQ("bad_opcode, 32 B", packet_line(unknown));
}

}  // namespace
}  // namespace verbena::net
