#include "ipc/rendezvous.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <set>

#include "ipc/channel.hpp"
#include "ipc/process_id.hpp"

namespace verbena::ipc {
namespace {

TEST(Rendezvous, NamesAreDistinct) {
  EXPECT_EQ(
      4u,
      (std::set{user_agent_name(0), user_agent_name(1000), system_agent_name(), port_owner_name()}.size()));
}

TEST(Rendezvous, HasRoomForOneListener) {
  auto first = listen_at("verbena.test");
  ASSERT_TRUE(first);
  const auto second = listen_at("verbena.test");
  ASSERT_FALSE(second);
  EXPECT_EQ(EADDRINUSE, second.error().code);
  EXPECT_TRUE(listen_at("verbena.test2"));  // a longer name is another name
  EXPECT_TRUE(listen_at("verbena.tes"));

  first->reset();
  EXPECT_TRUE(listen_at("verbena.test"));  // nothing is left behind
}

TEST(Rendezvous, WithNobodyRefusesAtOnce) {
  const auto socket = connect_to("verbena.nobody");
  ASSERT_FALSE(socket);
  EXPECT_EQ(ECONNREFUSED, socket.error().code);
}

TEST(Rendezvous, CarriesAMessageAndTellsWhoThePeerIs) {
  const auto listener = *listen_at("verbena.test");
  const auto client = *connect_to("verbena.test");
  ASSERT_TRUE(send(client.get(), Stop{.force = 1}));
  const base::UniqueFd server(::accept(listener.get(), nullptr, nullptr));
  ASSERT_TRUE(server);
  EXPECT_EQ(1u, receive(server.get())->as<Stop>()->force);
  for (const int end : {client.get(), server.get()}) {
    const auto peer = peer_of(end);
    ASSERT_TRUE(peer);
    EXPECT_EQ(::getpid(), peer->pid);
    EXPECT_EQ(::geteuid(), peer->uid);
  }
}

TEST(Rendezvous, PeerIsWhoConnectedNotWhoHoldsTheSocket) {
  const auto listener = *listen_at("verbena.test");
  const pid_t child = ::fork();
  if (child == 0) ::_exit(connect_to("verbena.test").has_value() ? 0 : 1);
  int status = -1;
  ASSERT_EQ(child, ::waitpid(child, &status, 0));
  ASSERT_EQ(0, status);
  const base::UniqueFd server(::accept(listener.get(), nullptr, nullptr));
  EXPECT_EQ(child, peer_of(server.get())->pid);
}

TEST(Rendezvous, GivesAPidfdOfThePeer) {
  const auto listener = *listen_at("verbena.test");
  const auto client = *connect_to("verbena.test");
  const base::UniqueFd server(::accept(listener.get(), nullptr, nullptr));
  const auto pidfd = pidfd_of_peer(server.get());
  ASSERT_TRUE(pidfd);
  EXPECT_EQ(::getpid(), pid_of_pidfd(pidfd.get()));
  EXPECT_TRUE(::fcntl(pidfd.get(), F_GETFD) & FD_CLOEXEC);
}

TEST(Rendezvous, APidfdOfAPeerThatIsGoneNamesNobody) {
  const auto listener = *listen_at("verbena.test");
  const pid_t child = ::fork();
  if (child == 0) ::_exit(connect_to("verbena.test").has_value() ? 0 : 1);
  ASSERT_EQ(child, ::waitpid(child, nullptr, 0));
  const base::UniqueFd server(::accept(listener.get(), nullptr, nullptr));
  EXPECT_EQ(-1, pid_of_pidfd(pidfd_of_peer(server.get()).get()));
}

TEST(Rendezvous, SocketsAreCloseOnExecAndDoNotBlock) {
  const auto listener = *listen_at("verbena.test");
  const auto client = *connect_to("verbena.test");
  for (const int fd : {listener.get(), client.get()}) {
    EXPECT_TRUE(::fcntl(fd, F_GETFD) & FD_CLOEXEC);
    EXPECT_TRUE(::fcntl(fd, F_GETFL) & O_NONBLOCK);
  }
}

TEST(Rendezvous, AFullBacklogSaysTryAgain) {
  const auto listener = *listen_at("verbena.test");
  std::vector<base::UniqueFd> clients;
  base::Result<base::UniqueFd> client;
  while ((client = connect_to("verbena.test"))) {
    clients.push_back(std::move(*client));
    ASSERT_LT(clients.size(), 1000u);
  }
  EXPECT_EQ(EAGAIN, client.error().code);
  EXPECT_GE(clients.size(), 250u);  // as many as there are slots
}

TEST(Rendezvous, IsScopedByTheNetworkNamespace) {
  const auto listener = *listen_at("verbena.test");
  const pid_t child = ::fork();
  if (child == 0) {
    if (::unshare(CLONE_NEWNET) != 0) ::_exit(2);
    const auto socket = connect_to("verbena.test");
    ::_exit(!socket && socket.error().code == ECONNREFUSED && listen_at("verbena.test") ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(child, ::waitpid(child, &status, 0));
  EXPECT_EQ(0, status);
}

TEST(Rendezvous, PeerOfWhatIsNoSocketIsAnError) {
  const base::UniqueFd file(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(ENOTSOCK, peer_of(file.get()).error().code);
}

}  // namespace
}  // namespace verbena::ipc
