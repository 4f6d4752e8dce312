// pthread_cancel() unwinds the stack from whatever system call it meets; our frames, and the locks that they
// hold, are not made for that.
#pragma once

#include <pthread.h>

namespace verbena::base {

class NoCancel {
 public:
  NoCancel() { ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~NoCancel() { ::pthread_setcancelstate(before_, nullptr); }
  NoCancel(const NoCancel&) = delete;
  NoCancel& operator=(const NoCancel&) = delete;

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

}  // namespace verbena::base
