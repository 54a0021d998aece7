// The shape of a 16-ary tree over n leaves: how many nodes each level has and where it starts.
#pragma once

#include <cstddef>

namespace replay_buffer {

inline constexpr unsigned kFanoutBits = 4;
inline constexpr std::size_t kFanout = std::size_t{1} << kFanoutBits;

// Level 0 holds the leaves; each level above has a node for 16 of the one below. The last level is
// the first that has no more nodes than kCrown: who draws adds them up, so that who writes need not
// keep one node current that everybody else writes too. Every level is padded to whole groups of
// 16, so that the children of any node are 16 words on two cache lines.
class TreeShape {
 public:
  static constexpr std::size_t kCrown = 256;
  static constexpr std::size_t kMaxLevels = 10;  // 16^9 leaves, and the crown over them

  explicit TreeShape(std::size_t leaves) {
    std::size_t n = leaves;
    for (;;) {
      const std::size_t padded = (n + kFanout - 1) / kFanout * kFanout;
      start_[levels_] = nodes_;
      size_[levels_] = padded;
      nodes_ += padded;
      ++levels_;
      if (levels_ > 1 && padded <= kCrown) return;
      n = padded / kFanout;
    }
  }

  std::size_t levels() const { return levels_; }
  std::size_t start(std::size_t level) const { return start_[level]; }
  std::size_t size(std::size_t level) const { return size_[level]; }
  std::size_t nodes() const { return nodes_; }
  std::size_t inner_nodes() const { return nodes_ - size_[0]; }

 private:
  std::size_t levels_ = 0;
  std::size_t nodes_ = 0;
  std::size_t start_[kMaxLevels] = {};
  std::size_t size_[kMaxLevels] = {};
};

}  // namespace replay_buffer
