#include "local_path/forked_child.hpp"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <sstream>

namespace verbena::local_path {
namespace {

// A name, then what came of it: 0, or an errno.
class Answers {
 public:
  void add(const char* name, int error) { text_ << ' ' << name << '=' << error; }
  template <typename T>
  void add_made(const char* name, T* made) {
    add(name, made != nullptr ? 0 : errno);
  }
  [[nodiscard]] std::string text() const { return text_.str(); }

 private:
  std::ostringstream text_;
};

std::string use_all(const Rig& rig, const Queue& queue, ibv_qp* pair, const Memory& memory,
                    const Address& peer) {
  Answers answers;
  ibv_wc taken;
  // -1, without an errno, is all that ibv_poll_cq can say.
  answers.add("poll", ibv_poll_cq(queue.cq, 1, &taken));
  answers.add("notify", ibv_req_notify_cq(queue.cq, 0));
  answers.add("send", post_send(pair, {.memory = &memory, .length = 8}));
  answers.add("write", post_send(pair, {.opcode = IBV_WR_RDMA_WRITE, .memory = &memory, .length = 1 << 20}));
  answers.add("receive", post_receive(pair, {.memory = &memory, .length = 8}));
  answers.add("error", move_to(pair, IBV_QPS_ERR));
  const char* step = "";
  answers.add("connect", rig.connect(pair, 1, peer, {}, step));
  ibv_qp_attr attributes{};
  ibv_qp_init_attr initial{};
  answers.add("query", ibv_query_qp(pair, &attributes, IBV_QP_STATE, &initial));
  answers.add("resize", ibv_resize_cq(queue.cq, 100));
  errno = 0;
  Memory another = map_memory(4096, false);
  answers.add("register", rig.register_memory(another));
  answers.add_made("cq", ibv_create_cq(rig.context(), 10, nullptr, nullptr, 0));
  ibv_qp* other = nullptr;
  answers.add("qp", rig.make_pair(queue, 4, other));
  if (queue.channel != nullptr) {
    // Asked without waiting: the parent's events are the parent's.
    const int flags = ::fcntl(queue.channel->fd, F_GETFL);
    ::fcntl(queue.channel->fd, F_SETFL, flags | O_NONBLOCK);
    ibv_cq* cq = nullptr;
    void* context = nullptr;
    answers.add("event", ibv_get_cq_event(queue.channel, &cq, &context));
    ::fcntl(queue.channel->fd, F_SETFL, flags);  // they are the parent's, too
  }
  answers.add("deregister", ibv_dereg_mr(memory.mr));
  answers.add("destroy_qp", ibv_destroy_qp(pair));
  answers.add("destroy_cq", ibv_destroy_cq(queue.cq));
  return answers.text();
}

// With a device that it opens itself a child is a process like any other; here it talks to itself.
int use_own() {
  const Rig rig = Rig::open();
  Queue queue;
  ibv_qp* pairs[2] = {};
  Memory memory = map_memory(8192, false);
  if (rig.make_queue(16, false, queue) != 0 || rig.make_pair(queue, 4, pairs[0]) != 0 ||
      rig.make_pair(queue, 4, pairs[1]) != 0 || rig.register_memory(memory) != 0)
    return errno;
  const char* step = "";
  for (int i = 0; i < 2; ++i)
    if (const int error = rig.connect(pairs[i], 1, {pairs[1 - i]->qp_num, 1, rig.gid()}, {}, step);
        error != 0)
      return error;
  const Work write{.opcode = IBV_WR_RDMA_WRITE,
                   .memory = &memory,
                   .length = 4096,
                   .remote = memory.address() + 4096,
                   .key = memory.mr->rkey};
  if (const int error = post_send(pairs[0], write); error != 0) return error;
  const auto taken = poll_for(queue, 1, 2'000);
  return taken.size() == 1 && taken[0].status == IBV_WC_SUCCESS ? 0 : -1;
}

}  // namespace

std::string use_in_child(const Rig& rig, const Queue& queue, ibv_qp* pair, const Memory& memory,
                         const Address& peer) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return "no pipe";
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(10);
    const std::string text = use_all(rig, queue, pair, memory, peer) + " own=" + std::to_string(use_own());
    [[maybe_unused]] const auto written = ::write(ends[1], text.data(), text.size());
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string text;
  char buffer[256];
  for (ssize_t got = 0; (got = ::read(ends[0], buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<size_t>(got));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) return "died " + std::to_string(WTERMSIG(status));
  return "forked" + text;
}

}  // namespace verbena::local_path
