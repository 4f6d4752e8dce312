#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <string>

#include "ipc/cm_messages.hpp"

namespace verbena::cm {

inline ipc::CmAddress address(const std::string& text, uint16_t port = 0) {
  ipc::CmAddress address{.port = port, .family = AF_INET};
  if (text.find(':') != std::string::npos) {
    address.family = AF_INET6;
    EXPECT_EQ(::inet_pton(AF_INET6, text.c_str(), address.bytes), 1);
  } else {
    address.bytes[10] = address.bytes[11] = 0xff;
    EXPECT_EQ(::inet_pton(AF_INET, text.c_str(), address.bytes + 12), 1);
  }
  return address;
}

}  // namespace verbena::cm
