// rdma_getaddrinfo: getaddrinfo(3) with queue pair types and port spaces in place of socket types.
#include <netdb.h>
#include <rdma/rdma_cma.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#include "abi/abi.hpp"

namespace verbena::abi {
namespace {

constexpr int kKnownFlags = RAI_PASSIVE | RAI_NUMERICHOST | RAI_NOROUTE | RAI_FAMILY;

// All of a list is malloc's: programs (libfabric) put addresses of their own into one and leave it to us to
// free them.
struct FreeList {
  void operator()(rdma_addrinfo* list) const {
    while (list != nullptr) {
      rdma_addrinfo* next = list->ai_next;
      std::free(list->ai_src_addr);
      std::free(list->ai_dst_addr);
      std::free(list->ai_src_canonname);
      std::free(list->ai_dst_canonname);
      std::free(list->ai_route);
      std::free(list->ai_connect);
      std::free(list);
      list = next;
    }
  }
};
using List = std::unique_ptr<rdma_addrinfo, FreeList>;

void* copy_of(const void* bytes, size_t length) {
  void* made = std::malloc(length);
  if (made == nullptr) throw std::bad_alloc();
  std::memcpy(made, bytes, length);
  return made;
}

sockaddr* copy_address(const sockaddr* address, socklen_t length) {
  return static_cast<sockaddr*>(copy_of(address, length));
}

// The type and the port space follow from each other where one is missing.
int agree_on_type(rdma_addrinfo& wanted) {
  if (wanted.ai_port_space == 0)
    wanted.ai_port_space = wanted.ai_qp_type == IBV_QPT_UD ? RDMA_PS_UDP : RDMA_PS_TCP;
  if (wanted.ai_qp_type == 0)
    wanted.ai_qp_type = wanted.ai_port_space == RDMA_PS_UDP || wanted.ai_port_space == RDMA_PS_IPOIB
                            ? IBV_QPT_UD
                            : IBV_QPT_RC;
  switch (wanted.ai_port_space) {
    case RDMA_PS_TCP:
      return wanted.ai_qp_type == IBV_QPT_UD ? EAI_SOCKTYPE : 0;
    case RDMA_PS_UDP:
    case RDMA_PS_IPOIB:
      return wanted.ai_qp_type == IBV_QPT_UD ? 0 : EAI_SOCKTYPE;
    case RDMA_PS_IB:
      return 0;
    default:
      return EAI_SOCKTYPE;
  }
}

List entry_of(const rdma_addrinfo& wanted, bool passive, const sockaddr* address, socklen_t length,
              const char* canonical) {
  constexpr rdma_addrinfo kEmpty{};
  List made(static_cast<rdma_addrinfo*>(copy_of(&kEmpty, sizeof(kEmpty))));
  made->ai_flags = wanted.ai_flags;
  made->ai_family = address->sa_family;
  made->ai_qp_type = wanted.ai_qp_type;
  made->ai_port_space = wanted.ai_port_space;
  auto* name =
      canonical != nullptr ? static_cast<char*>(copy_of(canonical, std::strlen(canonical) + 1)) : nullptr;
  if (passive) {
    made->ai_src_addr = copy_address(address, length);
    made->ai_src_len = length;
    made->ai_src_canonname = name;
    return made;
  }
  made->ai_dst_addr = copy_address(address, length);
  made->ai_dst_len = length;
  made->ai_dst_canonname = name;
  // The caller's source goes along, for rdma_create_ep to bind to.
  if (wanted.ai_src_len != 0 && wanted.ai_src_addr != nullptr) {
    made->ai_src_addr = copy_address(wanted.ai_src_addr, wanted.ai_src_len);
    made->ai_src_len = wanted.ai_src_len;
  }
  return made;
}

// Without a node or service the hints bring the addresses; one is enough (a multicast group is named as the
// source).
int from_hints(const rdma_addrinfo& wanted, List& list) {
  const auto there = [](const sockaddr* address, socklen_t length) {
    return address != nullptr && length >= sizeof(sa_family_t);
  };
  const bool has_source = there(wanted.ai_src_addr, wanted.ai_src_len);
  const bool has_target = there(wanted.ai_dst_addr, wanted.ai_dst_len);
  if (!has_source && !has_target) return EAI_NONAME;
  if (has_target) {
    list = entry_of(wanted, false, wanted.ai_dst_addr, wanted.ai_dst_len, nullptr);
  } else {
    list = entry_of(wanted, true, wanted.ai_src_addr, wanted.ai_src_len, nullptr);
  }
  return 0;
}

int from_names(const char* node, const char* service, const rdma_addrinfo& wanted, List& list) {
  const bool passive = (wanted.ai_flags & RAI_PASSIVE) != 0;
  addrinfo asked{};
  if (passive) asked.ai_flags |= AI_PASSIVE;
  if ((wanted.ai_flags & RAI_NUMERICHOST) != 0) asked.ai_flags |= AI_NUMERICHOST;
  asked.ai_family = wanted.ai_family;
  asked.ai_socktype = wanted.ai_qp_type == IBV_QPT_UD ? SOCK_DGRAM : SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int failed = ::getaddrinfo(node, service, &asked, &found); failed != 0) return failed;
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owned(found, &::freeaddrinfo);
  rdma_addrinfo** end = nullptr;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    List entry = entry_of(wanted, passive, one->ai_addr, one->ai_addrlen, one->ai_canonname);
    rdma_addrinfo* raw = entry.get();
    if (end == nullptr)
      list = std::move(entry);
    else
      *end = entry.release();
    end = &raw->ai_next;
  }
  return list ? 0 : EAI_NONAME;
}

// An EAI_ code, or -1 with errno.
base::Result<int> look_up(const char* node, const char* service, const rdma_addrinfo* hints,
                          rdma_addrinfo** result) {
  if (result == nullptr || (node == nullptr && service == nullptr && hints == nullptr))
    return base::fail(EINVAL, "rdma_getaddrinfo needs a node, a service, or hints that have addresses");
  rdma_addrinfo wanted = hints != nullptr ? *hints : rdma_addrinfo{};
  if ((wanted.ai_flags & ~kKnownFlags) != 0) return EAI_BADFLAGS;
  if (const int failed = agree_on_type(wanted); failed != 0) return failed;
  List list;
  const int failed = node == nullptr && service == nullptr ? from_hints(wanted, list)
                                                           : from_names(node, service, wanted, list);
  if (failed == 0) *result = list.release();
  return failed;
}

}  // namespace
}  // namespace verbena::abi

using namespace verbena;

VERBENA_ENTRY int vb_rdma_getaddrinfo(const char* node, const char* service, const rdma_addrinfo* hints,
                                      rdma_addrinfo** res) noexcept {
  const auto found = abi::guarded([&] { return abi::look_up(node, service, hints, res); });
  if (!found) return abi::minus_one(found);
  if (*found != 0)
    base::explain(std::string("rdma_getaddrinfo: ") + (node != nullptr ? node : "(no node)") + ", " +
                  (service != nullptr ? service : "(no service)") + ": " + ::gai_strerror(*found));
  return *found;
}
VERBENA_SAME_PROTOTYPE(rdma_getaddrinfo);

VERBENA_ENTRY void vb_rdma_freeaddrinfo(rdma_addrinfo* res) noexcept { abi::FreeList()(res); }
VERBENA_SAME_PROTOTYPE(rdma_freeaddrinfo);
