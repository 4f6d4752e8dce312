#include "client/attendance.hpp"

#include <gtest/gtest.h>

namespace verbena::client {
namespace {

using base::Duration;
using base::Instant;
using std::chrono::microseconds;
using Step = Attendance::Step;

class AttendanceTest : public testing::Test {
 protected:
  AttendanceTest() {
    pass(microseconds(1000));
    EXPECT_TRUE(look());
  }
  void pass(Duration time) { now_ = now_ + time; }
  bool look(bool busy = false) { return attendance_.look(now_, polls_, busy); }
  // It has polled since, and that is seen.
  void see_a_poll() {
    ++polls_;
    EXPECT_FALSE(look());
  }
  // Stands by: nobody is at the port, and it was driven so long ago.
  Attendance::Advice stand_by(Duration driven = microseconds(1000)) {
    return attendance_.stand_by(now_, false, {(now_ + -driven).ns});
  }
  // Looks that find it at nothing but polling, each after the pause before; the last pause.
  Duration spin(unsigned looks) {
    Duration rest = Attendance::kAfterLastPoll;
    for (unsigned i = 0; i < looks; ++i) {
      pass(rest);
      polls_ += static_cast<uint64_t>(rest / microseconds(1));
      EXPECT_FALSE(look());
      rest = pause({});
    }
    return rest;
  }
  Duration pause(Duration used) { return attendance_.pause(Attendance::kAfterLastPoll, used); }
  // Packets lie in the socket though the program has polled, and then the helper finds work.
  void begin_to_watch() {
    see_a_poll();
    while (stand_by().step != Step::kLookAtSocket) {
    }
    EXPECT_EQ(Attendance::kDoubt, attendance_.saw_packets(true));
    EXPECT_EQ(Attendance::kDoubt, attendance_.pause(Attendance::kDoubt, {}));
    pass(Attendance::kDoubt);
    EXPECT_TRUE(look());
    attendance_.worked_alone(true);
    see_a_poll();
  }

  Attendance attendance_;
  Instant now_{1'000'000'000};
  uint64_t polls_ = 0;
};

TEST_F(AttendanceTest, AloneSomeTimeAfterTheLastPoll) {
  see_a_poll();
  EXPECT_FALSE(attendance_.alone());
  pass(Attendance::kAfterLastPoll - microseconds(1));
  EXPECT_FALSE(look());
  pass(microseconds(1));
  EXPECT_TRUE(look());
  EXPECT_TRUE(attendance_.alone());
  EXPECT_FALSE(attendance_.polled_since(polls_));
  EXPECT_TRUE(attendance_.polled_since(polls_ + 1));
}

TEST_F(AttendanceTest, AThreadAtThePortIsAsGoodAsAPoll) {
  EXPECT_FALSE(look(true));
  pass(Attendance::kAfterLastPoll / 2);
  EXPECT_FALSE(look(true));
  pass(Attendance::kAfterLastPoll / 2);
  EXPECT_FALSE(look());
  pass(Attendance::kAfterLastPoll / 2);
  EXPECT_TRUE(look());
}

TEST_F(AttendanceTest, StandsByAndLooksAtTheSocket) {
  see_a_poll();
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(Step::kLookAtSocket, stand_by().step);
    EXPECT_EQ(Attendance::kAfterLastPoll, attendance_.saw_packets(false));
    see_a_poll();
  }
}

TEST_F(AttendanceTest, AloneAfterAPauseThatWasLonger) {
  see_a_poll();
  (void)pause(base::milliseconds(1));
  EXPECT_EQ(16 * microseconds(50), pause(base::milliseconds(1) + microseconds(50)));
  pass(microseconds(799));
  EXPECT_FALSE(look());
  pass(microseconds(1));
  EXPECT_TRUE(look());
}

TEST_F(AttendanceTest, PausesAsItsShareOfTheProcessorWants) {
  see_a_poll();
  Duration used = base::milliseconds(5);
  EXPECT_EQ(Attendance::kAfterLastPoll, pause(used)) << "there is nothing to compare with";
  EXPECT_EQ(Attendance::kAfterLastPoll, pause(used += microseconds(1))) << "it takes little";
  EXPECT_EQ(microseconds(480), pause(used += microseconds(30)));
  EXPECT_EQ(Attendance::kLongestPause, pause(used += microseconds(300)));
  attendance_.worked_alone(true);
  EXPECT_EQ(Attendance::kAfterLastPoll, pause(used += base::milliseconds(1))) << "that was for its work";
}

TEST_F(AttendanceTest, WhoDoesNothingButPollIsLookedAtRarely) {
  EXPECT_EQ(Attendance::kAfterLastPoll, spin(Attendance::kProven - 1));
  EXPECT_EQ(Attendance::kRarely, spin(10));
  pass(Attendance::kRarely - microseconds(1));
  EXPECT_FALSE(look());
  EXPECT_EQ(Attendance::kAfterLastPoll, pause({})) << "it polls no more, it seems";
  pass(Attendance::kAfterLastPoll);
  EXPECT_TRUE(look());
}

TEST_F(AttendanceTest, WhoPollsNowAndThenIsLookedAtAsEver) {
  EXPECT_EQ(Attendance::kRarely, spin(Attendance::kProven));
  for (int i = 0; i < 100; ++i) {
    pass(Attendance::kAfterLastPoll);
    polls_ += Attendance::kAfterLastPoll / Attendance::kAtNothingElse - 1;
    EXPECT_FALSE(look());
    EXPECT_EQ(Attendance::kAfterLastPoll, pause({}));
  }
}

TEST_F(AttendanceTest, WhoLeavesSomethingUndoneMustProveItselfAnew) {
  EXPECT_EQ(Attendance::kRarely, spin(Attendance::kProven));
  attendance_.left_undone();
  EXPECT_EQ(Attendance::kAfterLastPoll, spin(Attendance::kProven - 1));
  EXPECT_EQ(Attendance::kRarely, spin(1));
}

// Looks may follow each other at once, and find nobody.
TEST_F(AttendanceTest, NobodyProvesItselfByQuickLooks) {
  for (unsigned i = 0; i < 2 * Attendance::kProven; ++i) {
    pass(microseconds(10));
    EXPECT_TRUE(look());
  }
  see_a_poll();
  EXPECT_EQ(Attendance::kAfterLastPoll, pause({}));
}

TEST_F(AttendanceTest, NobodyProvesItselfWhileWatched) {
  begin_to_watch();
  EXPECT_NE(Attendance::kRarely, spin(2 * Attendance::kProven));
  attendance_.left_undone();
  for (unsigned i = 0; i < Attendance::kPatience; ++i)
    EXPECT_EQ(Step::kRest, attendance_.stand_by(now_, true, {}).step);
  EXPECT_EQ(Attendance::kAfterLastPoll, pause({})) << "it is watched no more";
}

TEST_F(AttendanceTest, ADoubtIsShortForWhoeverItIs) {
  EXPECT_EQ(Attendance::kRarely, spin(Attendance::kProven));
  EXPECT_EQ(Step::kLookAtSocket, stand_by().step);
  EXPECT_EQ(Attendance::kDoubt, attendance_.pause(attendance_.saw_packets(true), {}));
}

// The program is given less time, and its polling on shows that the doubt was unfounded: the next comes later
// and later.
TEST_F(AttendanceTest, TrustGrowsWithEachDoubtInVain) {
  see_a_poll();
  for (const unsigned trust : {0u, 1u, 3u, 7u, 15u, 31u, 63u, 63u}) {
    unsigned rests = 0;
    for (; stand_by().step != Step::kLookAtSocket; ++rests) see_a_poll();
    EXPECT_EQ(trust, rests);
    EXPECT_EQ(Attendance::kDoubt, attendance_.saw_packets(true));
    EXPECT_FALSE(attendance_.weighs_time());
    see_a_poll();
  }
}

TEST_F(AttendanceTest, WatchesAProgramThatWasntThereWhenSomethingCame) {
  begin_to_watch();
  EXPECT_EQ(Step::kDrive, stand_by().step);
  EXPECT_TRUE(attendance_.alone()) << "the socket wakes us";
  attendance_.drove(true);
  see_a_poll();
  const auto [step, rest] = stand_by(microseconds(5));
  EXPECT_EQ(Step::kDrive, step) << "it is there, but perhaps no more";
  EXPECT_EQ(Attendance::kDoubt, rest) << "what was put off for it isn't put off for long";
}

TEST_F(AttendanceTest, LeavesTheSocketToAThreadThatIsAtIt) {
  begin_to_watch();
  const auto [step, rest] = attendance_.stand_by(now_, true, {});
  EXPECT_EQ(Step::kRest, step);
  EXPECT_EQ(Attendance::kDoubt, rest);
}

TEST_F(AttendanceTest, ADoubtWithoutAnyWorkIsNoReasonToWatch) {
  see_a_poll();
  EXPECT_EQ(Step::kLookAtSocket, stand_by().step);
  (void)attendance_.saw_packets(true);
  (void)attendance_.pause(Attendance::kDoubt, {});
  pass(Attendance::kDoubt);
  EXPECT_TRUE(look());
  attendance_.worked_alone(false);
  see_a_poll();
  EXPECT_EQ(Step::kLookAtSocket, stand_by().step);
}

TEST_F(AttendanceTest, WatchesNoMoreWhenTheProgramWasThereOftenEnough) {
  begin_to_watch();
  for (unsigned i = 0; i < Attendance::kPatience - 1; ++i) {
    EXPECT_EQ(Step::kDrive, stand_by({}).step);
    attendance_.drove(true);  // which it would have found itself
  }
  EXPECT_EQ(Step::kDrive, stand_by().step);
  attendance_.drove(true);  // so they count anew
  for (unsigned i = 0; i < Attendance::kPatience; ++i) {
    EXPECT_FALSE(attendance_.weighs_time()) << i;
    EXPECT_EQ(Step::kRest, attendance_.stand_by(now_, true, {}).step);
  }
  EXPECT_TRUE(attendance_.weighs_time());
  EXPECT_EQ(Step::kLookAtSocket, stand_by().step);
}

TEST_F(AttendanceTest, WhoSharesItsCoreDoesntLookOnForAWhile) {
  EXPECT_TRUE(attendance_.may_look_on());
  EXPECT_FALSE(attendance_.yielded(Attendance::kShared));
  EXPECT_TRUE(attendance_.may_look_on());
  EXPECT_TRUE(attendance_.yielded(Attendance::kShared + microseconds(1)));
  for (unsigned i = 0; i < Attendance::kForAWhile; ++i) EXPECT_FALSE(attendance_.may_look_on());
  EXPECT_TRUE(attendance_.may_look_on());
}

}  // namespace
}  // namespace verbena::client
