// golden_seeds DIRECTORY: writes each packet of tests/golden there, BTH to ICRC, for a fuzzer to start from.
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "support/pcap.hpp"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: golden_seeds DIRECTORY\n");
    return 2;
  }
  const std::filesystem::path directory = argv[1];
  std::filesystem::create_directories(directory);
  size_t number = 0;
  for (const auto& packet : verbena::test::golden_packets()) {
    std::ofstream file(directory / ("golden-" + std::to_string(number++)), std::ios::binary);
    file.write(reinterpret_cast<const char*>(packet.bytes.data()),
               static_cast<std::streamsize>(packet.bytes.size()));
    if (!file) {
      std::fprintf(stderr, "golden_seeds: can't write to %s\n", argv[1]);
      return 1;
    }
  }
  std::printf("%zu seeds in %s\n", number, argv[1]);
  return 0;
}
