// golden_seeds DIRECTORY: what the fuzzers start from. roce/ gets each packet of tests/golden, BTH to ICRC,
// and a directory named after each of the engine's targets the captures as sequences of steps.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "golden_sequences.hpp"
#include "support/pcap.hpp"

namespace {

bool write(const std::filesystem::path& path, const void* bytes, size_t size) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream file(path, std::ios::binary);
  file.write(static_cast<const char*>(bytes), static_cast<std::streamsize>(size));
  if (!file) std::fprintf(stderr, "golden_seeds: can't write %s\n", path.c_str());
  return static_cast<bool>(file);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: golden_seeds DIRECTORY\n");
    return 2;
  }
  const std::filesystem::path directory = argv[1];
  size_t number = 0;
  for (const auto& packet : verbena::test::golden_packets())
    if (!write(directory / "roce" / ("golden-" + std::to_string(number++)), packet.bytes.data(),
               packet.bytes.size()))
      return 1;
  for (const auto& seed : verbena::fuzz::golden_sequences()) {
    if (!write(directory / seed.target / seed.name, seed.bytes.data(), seed.bytes.size())) return 1;
    ++number;
  }
  std::printf("%zu seeds in %s\n", number, argv[1]);
  return 0;
}
