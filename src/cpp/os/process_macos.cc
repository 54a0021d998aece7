// Compiled for aarch64-macos, but never run there.
#if defined(__APPLE__)

#include <libproc.h>
#include <signal.h>
#include <sys/proc_info.h>
#include <sys/sysctl.h>
#include <unistd.h>

#include <cerrno>

#include "os/process_query.h"

namespace replay_buffer::os::internal {

namespace {

// In microseconds since 1970; 0 when the system does not say.
std::uint64_t start_time_of(pid_t pid) {
  proc_bsdinfo info{};
  if (::proc_pidinfo(pid, PROC_PIDTBSDINFO, 0, &info, sizeof info) != sizeof info) return 0;
  return info.pbi_start_tvsec * 1'000'000u + info.pbi_start_tvusec;
}

}  // namespace

std::uint64_t query_boot() {
  char boot[64];
  std::size_t size = sizeof boot;
  if (::sysctlbyname("kern.bootsessionuuid", boot, &size, nullptr, 0) != 0) return 0;
  std::uint64_t digest = 0xcbf29ce484222325u;
  for (std::size_t i = 0; i < size; ++i) {
    digest = (digest ^ static_cast<unsigned char>(boot[i])) * 0x100000001b3u;
  }
  return digest == 0 ? 1 : digest;
}

ProcessIdentity query_self() {
  const pid_t pid = ::getpid();
  return {static_cast<std::uint32_t>(pid), start_time_of(pid),
          query_boot()};  // there are no pid namespaces: the boot is all of the digest
}

bool query_gone(const ProcessIdentity& process) {
  const auto pid = static_cast<pid_t>(process.pid);
  if (::kill(pid, 0) != 0 && errno == ESRCH) return true;
  const std::uint64_t start_time = start_time_of(pid);
  if (start_time == 0 || process.start_time == 0) return false;
  return start_time != process.start_time;
}

}  // namespace replay_buffer::os::internal

#endif
