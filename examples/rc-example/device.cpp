#include "rc-example/device.hpp"

#include <endian.h>

#include <algorithm>

namespace examples {
namespace {

struct FreeDeviceList {
  void operator()(ibv_device** list) const { ibv_free_device_list(list); }
};

/// "505400fffe123456", however it was punctuated.
std::string plain_guid(std::string text) {
  std::erase(text, ':');
  if (text.starts_with("0x")) text.erase(0, 2);
  std::ranges::transform(text, text.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

bool is_meant(ibv_device* device, const std::string& name_or_guid) {
  if (name_or_guid.empty() || name_or_guid == ibv_get_device_name(device)) return true;
  return plain_guid(name_or_guid) == fmt::format("{:016x}", be64toh(ibv_get_device_guid(device)));
}

}  // namespace

Context open_device(const std::string& name_or_guid) {
  int count = 0;
  const std::unique_ptr<ibv_device*, FreeDeviceList> list(
      check_new("ibv_get_device_list", ibv_get_device_list(&count)));
  for (int i = 0; i < count; ++i) {
    ibv_device* const device = list.get()[i];
    if (!is_meant(device, name_or_guid)) continue;
    trace("ibv_get_device_list: takes {} of {}", ibv_get_device_name(device), count);
    return Context(check_new("ibv_open_device", ibv_open_device(device)));
  }
  throw Failure(name_or_guid.empty()
                    ? "there is no RDMA device here"
                    : fmt::format("none of {} devices has the name or GUID {}", count, name_or_guid));
}

Place::Place(const Choice& wanted)
    : choice(wanted), context(open_device(wanted.device)), device{}, port{}, gid{} {
  check("ibv_query_device", ibv_query_device(context.get(), &device));
  if (choice.port < 1 || choice.port > device.phys_port_cnt)
    throw Failure(fmt::format("port {} isn't one of the device's {}", choice.port, device.phys_port_cnt));
  check("ibv_query_port", ibv_query_port(context.get(), static_cast<uint8_t>(choice.port), &port));
  if (port.state != IBV_PORT_ACTIVE)
    throw Failure(fmt::format("port {} isn't active but {}", choice.port, ibv_port_state_str(port.state)));
  check("ibv_query_gid", ibv_query_gid(context.get(), static_cast<uint8_t>(choice.port),
                                       static_cast<int>(choice.gid_index), &gid));
}

}  // namespace examples
