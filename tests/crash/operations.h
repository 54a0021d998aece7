// The operations of the crash matrix: what a child does when it is killed or stopped.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "world.h"

namespace replay_buffer::crash_tests {

struct Operation {
  std::string name;
  BufferConfig config;
  // By the survivor, before the child starts. By default one and a half laps are there, and the
  // survivor holds a block.
  std::function<void(World&)> prepare;
  // By the child, after the points were armed: with the buffer open, or else without.
  std::function<void(World&, Participant&)> run;
  std::function<void(World&, Witness&)> run_alone = {};
  bool alone = false;  // others have to wait while it is stopped
  bool file = false;   // in a file, else in shared memory
  // Somebody who dies after the child has opened the buffer, and before the points are armed.
  std::function<void(const World&)> death = {};
  std::string points = {};  // only those that begin so
};

std::vector<Operation> writing();
std::vector<Operation> claiming();
std::vector<Operation> changing();
std::vector<Operation> mending();
std::vector<Operation> filing();
// A file that was open when the machine went down.
Operation recovering();
// Draws until it has to wait, waits for a moment, adds, and wakes those who wait.
Operation limiting();

// One and a half laps of rows are there, and the survivor holds a block.
void fill(World& world);
BufferConfig uniform();

// Draws and adds with the rate limiter, as a buffer's face makes them; false when it has to wait.
bool try_draw(Participant& who);
bool try_add(Participant& who);

}  // namespace replay_buffer::crash_tests
