// Sending several packets by one call, as both plain peers over UDP do.
#pragma once

#include <netinet/in.h>
#include <netinet/udp.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif

// All of `segment` bytes, the last perhaps shorter. As sendmsg().
static inline ssize_t send_segments(int fd, const struct sockaddr_in* to, char* data, size_t size,
                                    uint16_t segment) {
  struct iovec bytes = {data, size};
  char control[CMSG_SPACE(sizeof segment)] = {0};
  struct msghdr header = {.msg_name = (void*)to,
                          .msg_namelen = sizeof *to,
                          .msg_iov = &bytes,
                          .msg_iovlen = 1,
                          .msg_control = control,
                          .msg_controllen = sizeof control};
  struct cmsghdr* c = CMSG_FIRSTHDR(&header);
  c->cmsg_level = IPPROTO_UDP;
  c->cmsg_type = UDP_SEGMENT;
  c->cmsg_len = CMSG_LEN(sizeof segment);
  memcpy(CMSG_DATA(c), &segment, sizeof segment);
  return sendmsg(fd, &header, MSG_DONTWAIT);
}
