#include "cm/codec.hpp"

#include <algorithm>

#include "roce/bytes.hpp"

namespace verbena::cm {
namespace {

// Where each field lies is said once, in a walk() over the message; a Reader or a Writer takes the walk.
// Places are bytes from the begin of the MAD's data, bits from the byte's highest.
struct Reader {
  const std::byte* data;

  template <typename T>
  void number(size_t at, unsigned bit, unsigned width, T& value) {
    uint64_t read = 0;
    for (unsigned i = 0; i < width; ++i) {
      const unsigned place = bit + i;
      const auto byte = std::to_integer<unsigned>(data[at + place / 8]);
      read = read << 1 | (byte >> (7 - place % 8) & 1u);
    }
    value = static_cast<T>(read);
  }
  template <size_t Count>
  void bytes(size_t at, Bytes<Count>& value) {
    std::copy_n(data + at, Count, value.begin());
  }
};

struct Writer {
  std::byte* data;

  template <typename T>
  void number(size_t at, unsigned bit, unsigned width, const T& value) {
    const auto number = static_cast<uint64_t>(value);
    for (unsigned i = 0; i < width; ++i) {
      const unsigned place = bit + i;
      if (number >> (width - 1 - i) & 1u) data[at + place / 8] |= static_cast<std::byte>(0x80u >> place % 8);
    }
  }
  template <size_t Count>
  void bytes(size_t at, const Bytes<Count>& value) {
    std::ranges::copy(value, data + at);
  }
};

template <typename Walker, typename M>
void both_ids(Walker& walker, M& m) {
  walker.number(0, 0, 32, m.local_id);
  walker.number(4, 0, 32, m.remote_id);
}

template <typename Walker, typename Path>
void walk_path(Walker& walker, size_t at, Path& path) {
  walker.number(at, 0, 16, path.local_lid);
  walker.number(at + 2, 0, 16, path.remote_lid);
  walker.bytes(at + 4, path.local_gid);
  walker.bytes(at + 20, path.remote_gid);
  walker.number(at + 36, 0, 20, path.flow_label);
  walker.number(at + 39, 2, 6, path.rate);
  walker.number(at + 40, 0, 8, path.traffic_class);
  walker.number(at + 41, 0, 8, path.hop_limit);
  walker.number(at + 42, 0, 4, path.service_level);
  walker.number(at + 42, 4, 1, path.subnet_local);
  walker.number(at + 43, 0, 5, path.ack_timeout);
}

// M is the message, or the message const.
template <typename M, typename Of>
concept Is = std::same_as<std::remove_const_t<M>, Of>;

template <typename Walker, Is<Req> M>
void walk(Walker& walker, M& m) {
  walker.number(0, 0, 32, m.local_id);
  walker.number(8, 0, 64, m.service_id);
  walker.number(16, 0, 64, m.ca_guid);
  walker.number(28, 0, 32, m.qkey);
  walker.number(32, 0, 24, m.qpn);
  walker.number(35, 0, 8, m.responder_resources);
  walker.number(36, 0, 24, m.local_eecn);
  walker.number(39, 0, 8, m.initiator_depth);
  walker.number(40, 0, 24, m.remote_eecn);
  walker.number(43, 0, 5, m.remote_response_timeout);
  walker.number(43, 5, 2, m.transport);
  walker.number(43, 7, 1, m.flow_control);
  walker.number(44, 0, 24, m.first_psn);
  walker.number(47, 0, 5, m.local_response_timeout);
  walker.number(47, 5, 3, m.retry_count);
  walker.number(48, 0, 16, m.pkey);
  walker.number(50, 0, 4, m.mtu);
  walker.number(50, 4, 1, m.rdc_exists);
  walker.number(50, 5, 3, m.rnr_retry_count);
  walker.number(51, 0, 4, m.max_cm_retries);
  walker.number(51, 4, 1, m.srq);
  walker.number(51, 5, 3, m.extended_transport);
  walk_path(walker, 52, m.primary);
  walk_path(walker, 96, m.alternate);
  walker.bytes(140, m.private_data);
}

template <typename Walker, Is<Mra> M>
void walk(Walker& walker, M& m) {
  both_ids(walker, m);
  walker.number(8, 0, 2, m.about);
  walker.number(9, 0, 5, m.service_timeout);
  walker.bytes(10, m.private_data);
}

template <typename Walker, Is<Rej> M>
void walk(Walker& walker, M& m) {
  both_ids(walker, m);
  walker.number(8, 0, 2, m.about);
  walker.number(9, 0, 7, m.info_length);
  walker.number(10, 0, 16, m.reason);
  walker.bytes(12, m.info);
  walker.bytes(84, m.private_data);
}

template <typename Walker, Is<Rep> M>
void walk(Walker& walker, M& m) {
  both_ids(walker, m);
  walker.number(8, 0, 32, m.qkey);
  walker.number(12, 0, 24, m.qpn);
  walker.number(16, 0, 24, m.eecn);
  walker.number(20, 0, 24, m.first_psn);
  walker.number(24, 0, 8, m.responder_resources);
  walker.number(25, 0, 8, m.initiator_depth);
  walker.number(26, 0, 5, m.target_ack_delay);
  walker.number(26, 5, 2, m.failover);
  walker.number(26, 7, 1, m.flow_control);
  walker.number(27, 0, 3, m.rnr_retry_count);
  walker.number(27, 3, 1, m.srq);
  walker.number(28, 0, 64, m.ca_guid);
  walker.bytes(36, m.private_data);
}

template <typename Walker, typename M>
requires Is<M, Rtu> || Is<M, Drep>
void walk(Walker& walker, M& m) {
  both_ids(walker, m);
  walker.bytes(8, m.private_data);
}

template <typename Walker, Is<Dreq> M>
void walk(Walker& walker, M& m) {
  both_ids(walker, m);
  walker.number(8, 0, 24, m.remote_qpn);
  walker.bytes(12, m.private_data);
}

template <typename Walker, Is<SidrReq> M>
void walk(Walker& walker, M& m) {
  walker.number(0, 0, 32, m.request_id);
  walker.number(4, 0, 16, m.pkey);
  walker.number(8, 0, 64, m.service_id);
  walker.bytes(16, m.private_data);
}

template <typename Walker, Is<SidrRep> M>
void walk(Walker& walker, M& m) {
  walker.number(0, 0, 32, m.request_id);
  walker.number(4, 0, 8, m.status);
  walker.number(5, 0, 8, m.info_length);
  walker.number(8, 0, 24, m.qpn);
  walker.number(12, 0, 64, m.service_id);
  walker.number(20, 0, 32, m.qkey);
  walker.bytes(24, m.info);
  walker.bytes(96, m.private_data);
}

template <typename M>
bool read_if(const roce::Mad& mad, Message& into) {
  if (mad.header.attribute != static_cast<uint16_t>(M::kAttribute)) return false;
  Reader reader{mad.data.data()};
  walk(reader, into.body.emplace<M>());
  return true;
}

}  // namespace

std::optional<Message> parse(std::span<const std::byte> bytes) {
  const auto mad = roce::parse_mad(bytes);
  if (!mad || mad->header.management_class != roce::mad_class::kCommunication ||
      mad->header.class_version != kClassVersion || mad->header.method != roce::mad_method::kSend)
    return {};
  Message message{.transaction = mad->header.transaction, .body = {}};
  const bool known =
      read_if<Req>(*mad, message) || read_if<Mra>(*mad, message) || read_if<Rej>(*mad, message) ||
      read_if<Rep>(*mad, message) || read_if<Rtu>(*mad, message) || read_if<Dreq>(*mad, message) ||
      read_if<Drep>(*mad, message) || read_if<SidrReq>(*mad, message) || read_if<SidrRep>(*mad, message);
  if (!known) return {};
  return message;
}

MadBytes emit(const Message& message) {
  Bytes<roce::kMadDataBytes> data{};
  Writer writer{data.data()};
  const auto attribute = std::visit(
      [&](const auto& body) {
        walk(writer, body);
        return body.kAttribute;
      },
      message.body);
  MadBytes mad{};
  roce::emit_mad({.header = {.management_class = roce::mad_class::kCommunication,
                             .class_version = kClassVersion,
                             .method = roce::mad_method::kSend,
                             .transaction = message.transaction,
                             .attribute = static_cast<uint16_t>(attribute)},
                  .data = data},
                 mad);
  return mad;
}

}  // namespace verbena::cm
