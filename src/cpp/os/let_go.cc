#include "os/let_go.h"

namespace replay_buffer::os {

constinit thread_local Holding* holding = nullptr;
std::atomic<std::size_t> long_work{std::size_t{32} << 20};

}  // namespace replay_buffer::os
