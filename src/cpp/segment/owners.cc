#include "segment/owners.h"

#include <algorithm>
#include <string>
#include <utility>

#include "os/byte_lock.h"
#include "os/crash_point.h"
#include "replay_buffer/error.h"

namespace replay_buffer {
namespace {

// The byte of slot i is far behind the end of any segment: a lock needs no storage.
constexpr std::uint64_t kLocksAt = std::uint64_t{1} << 61;
// So many processes are named in a message.
constexpr std::size_t kNamed = 8;

}  // namespace

os::ProcessIdentity Owners::process_of(const Owner& owner) {
  return {owner.pid.load(std::memory_order_acquire),
          owner.start_time.load(std::memory_order_relaxed),
          owner.pid_namespace.load(std::memory_order_relaxed)};
}

Identity Owners::identity_of(std::size_t slot) const {
  const std::uint64_t activity = segment_.owners()[slot].activity.load(std::memory_order_acquire);
  return {static_cast<std::uint16_t>(slot), static_cast<std::uint16_t>(epoch_of(activity))};
}

// The lock of a slot; where there is no file, the pid. A descriptor that somebody closed may be
// that of another file by now, whose locks mean something else.
bool Owners::take(std::size_t slot) const {
  if (segment_.file() != nullptr) {
    return segment_.file()->intact() && os::byte_lock::try_lock(*segment_.file(), kLocksAt + slot);
  }
  std::uint32_t nobody = 0;
  // Pairs with the release in leave(): the last epoch is seen.
  return segment_.owners()[slot].pid.compare_exchange_strong(nobody, os::self().pid,
                                                             std::memory_order_acquire);
}

void Owners::give_up(std::size_t slot) const {
  if (segment_.file() != nullptr && segment_.file()->intact()) {
    os::byte_lock::unlock(*segment_.file(), kLocksAt + slot);
  }
}

Identity Owners::join() const {
  for (std::size_t i = 0; i < kOwnerCount; ++i) {
    Owner& owner = segment_.owners()[i];
    // A slot of our own: its lock may be ours through the same description.
    if (process_of(owner) == os::self() || !take(i)) continue;
    if (segment_.file() != nullptr && owner.pid.load(std::memory_order_relaxed) != 0 &&
        !dead(identity_of(i))) {
      // Its lock is free, and yet it lives: somebody closed its descriptors.
      give_up(i);
      continue;
    }
    REPLAY_CRASH_POINT("attach.slot");
    const os::ProcessIdentity me = os::self();
    owner.waits.store(0, std::memory_order_relaxed);
    owner.announced.store(0, std::memory_order_relaxed);
    owner.rows_before.store(owner.rows_added.load(std::memory_order_relaxed),
                            std::memory_order_relaxed);
    owner.start_time.store(me.start_time, std::memory_order_relaxed);
    owner.pid_namespace.store(me.pid_namespace, std::memory_order_relaxed);
    owner.pid.store(me.pid, std::memory_order_relaxed);
    REPLAY_CRASH_POINT("attach.named");
    // The epoch last: an identity with the new one always finds the new process. With it, what the
    // last owner held belongs to nobody alive.
    const std::uint64_t last = owner.activity.load(std::memory_order_relaxed);
    const std::uint64_t epoch = epoch_of(last) + 1U;
    owner.activity.store((epoch << 32) | (calls_of(last) != 0 ? 1 : 0), std::memory_order_release);
    REPLAY_CRASH_POINT("attach.epoch");
    return identity_of(i);
  }
  throw Error(ErrorCode::kBusy,
              "all " + std::to_string(kOwnerCount) + " places for writers are taken by " +
                  living() +
                  "; every handle that writes takes one, for all its threads. Close handles that "
                  "are not needed; one opened with readonly=True needs no place");
}

bool Owners::inherited(Identity me) const {
  return calls_of(slot(me).activity.load(std::memory_order_relaxed)) != 0;
}

void Owners::finish_inherited(Identity me) const {
  slot(me).activity.fetch_sub(1, std::memory_order_release);
}

void Owners::leave(Identity me) const {
  Owner& owner = slot(me);
  owner.waits.store(0, std::memory_order_relaxed);
  owner.pid.store(0, std::memory_order_release);
  give_up(me.owner);
}

bool Owners::dead(Identity who) const {
  if (who.owner >= kOwnerCount) return true;  // nonsense in a damaged segment
  const Owner& owner = slot(who);
  if (identity_of(who.owner) != who) return true;  // somebody else has the slot by now
  const os::ProcessIdentity process = process_of(owner);
  if (identity_of(who.owner) != who) return true;
  if (process.pid == 0) return true;
  const os::ProcessIdentity me = os::self();
  if (me.pid_namespace != 0 && process.pid_namespace == me.pid_namespace) return os::gone(process);
  return segment_.file() != nullptr && segment_.file()->intact() &&
         !os::byte_lock::held_by_other(*segment_.file(), kLocksAt + who.owner);
}

std::vector<Identity> Owners::all_dead() const {
  std::vector<Identity> found;
  for (std::size_t i = 0; i < kOwnerCount; ++i) {
    const Identity who = identity_of(i);
    if (slot(who).pid.load(std::memory_order_relaxed) != 0 && dead(who)) found.push_back(who);
  }
  return found;
}

std::string Owners::living() const {
  std::vector<std::size_t> slots;
  for (std::size_t i = 0; i < kOwnerCount; ++i) {
    const Identity who = identity_of(i);
    if (slot(who).pid.load(std::memory_order_relaxed) != 0 && !dead(who)) slots.push_back(i);
  }
  return names_of(slots);
}

std::string Owners::names_of(const std::vector<std::size_t>& slots) const {
  std::vector<std::pair<os::ProcessIdentity, std::size_t>> processes;  // and how often
  for (const std::size_t slot : slots) {
    const os::ProcessIdentity process = process_of(segment_.owners()[slot]);
    const auto known = std::find_if(processes.begin(), processes.end(),
                                    [&](const auto& one) { return one.first == process; });
    if (known != processes.end()) {
      ++known->second;
    } else if (process.pid != 0) {
      processes.emplace_back(process, 1);
    }
  }
  std::string said;
  for (std::size_t i = 0; i < std::min(processes.size(), kNamed); ++i) {
    const auto& [process, times] = processes[i];
    said += (i == 0 ? "process " : ", ") + std::to_string(process.pid);
    if (process == os::self()) said += " (this process)";
    if (process.pid_namespace != os::self().pid_namespace) said += " (in another container)";
    if (times > 1) said += " (" + std::to_string(times) + " times)";
  }
  if (processes.size() > kNamed) {
    said += " and " + std::to_string(processes.size() - kNamed) + " more";
  }
  return said;
}

// The slot is looked at once: whoever takes it over meanwhile has the calls of the last owner under
// way, and is not dead.
std::vector<Identity> Owners::dead_in_a_change() const {
  std::vector<Identity> found;
  for (std::size_t i = 0; i < kOwnerCount; ++i) {
    const std::uint64_t activity = segment_.owners()[i].activity.load(std::memory_order_acquire);
    const Identity who{static_cast<std::uint16_t>(i),
                       static_cast<std::uint16_t>(epoch_of(activity))};
    if (calls_of(activity) != 0 && dead(who)) found.push_back(who);
  }
  return found;
}

void Owners::bury(Identity who) const {
  Owner& owner = slot(who);
  std::uint64_t seen = owner.activity.load(std::memory_order_relaxed);
  while (static_cast<std::uint16_t>(epoch_of(seen)) == who.epoch &&
         !owner.activity.compare_exchange_weak(seen, seen & ~std::uint64_t{0xffffffff},
                                               std::memory_order_release)) {
  }
  // Under the lock of the slot: nobody can be taking it. Who cannot have it leaves the name.
  if (segment_.file() == nullptr || !take(who.owner)) return;
  if (identity_of(who.owner) == who) owner.pid.store(0, std::memory_order_release);
  give_up(who.owner);
}

}  // namespace replay_buffer
