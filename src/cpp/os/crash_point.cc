#include "os/crash_point.h"

#if defined(REPLAY_CRASH_POINTS)

#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <set>

namespace replay_buffer::os::crash {
namespace {

struct State {
  std::mutex lock;
  std::map<std::string, unsigned> passed;
  std::set<std::string> known;
  std::string armed;
  unsigned hit = 0;
  Action action = Action::kKill;

  State() {
    const char* text = std::getenv("REPLAY_CRASH_AT");
    if (text == nullptr) return;
    const std::string all = text;
    const std::size_t first = all.find(':');
    const std::size_t second = all.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) std::abort();
    armed = all.substr(0, first);
    hit = static_cast<unsigned>(std::strtoul(all.c_str() + first + 1, nullptr, 10));
    action = all.substr(second + 1) == "stop" ? Action::kStop : Action::kKill;
  }
};

State& state() {
  static State* const it = new State;  // lives to the end: threads may pass points at exit
  return *it;
}

}  // namespace

void arm(const std::string& point, unsigned hit, Action action) {
  State& s = state();
  const std::lock_guard guard(s.lock);
  s.passed.clear();
  s.armed = point;
  s.hit = hit;
  s.action = action;
}

void reset() {
  State& s = state();
  const std::lock_guard guard(s.lock);
  s.passed.clear();
  s.armed.clear();
}

std::vector<std::pair<std::string, unsigned>> passed() {
  State& s = state();
  const std::lock_guard guard(s.lock);
  return {s.passed.begin(), s.passed.end()};
}

std::vector<std::string> all() {
  State& s = state();
  const std::lock_guard guard(s.lock);
  return {s.known.begin(), s.known.end()};
}

bool know(const char* point) {
  State& s = state();
  const std::lock_guard guard(s.lock);
  s.known.insert(point);
  return true;
}

void at(const char* point) noexcept {
  State& s = state();
  bool now = false;
  Action action = Action::kKill;
  {
    const std::lock_guard guard(s.lock);
    now = ++s.passed[point] == s.hit && s.armed == point;
    action = s.action;
  }
  if (now) ::kill(::getpid(), action == Action::kKill ? SIGKILL : SIGSTOP);
}

}  // namespace replay_buffer::os::crash

#endif
