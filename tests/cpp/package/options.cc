// Uses a buffer at a location as a test in Python tells it, and prints what came of it.
//
//   options open|open-frames LOCATION
//   options create|create-frames LOCATION NAME=VALUE...
//
// Observations are 32 float32, of frames 2,048 uint8. Each line of the standard input is a command;
// each has one line of JSON as its answer:
//
//   config            the options that C++ sees
//   size              rows
//   fill N            adds rows 0 to N - 1
//   add ACTION        adds one row
//   update P          sets the priorities of the newest four rows
//   draw N BATCHES    draws
#include <replay_buffer/shared.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace rb = replay_buffer;

using Observation = std::array<float, 32>;
using Circular = rb::SharedCircularBuffer<Observation, std::int64_t>;
using Prioritized = rb::SharedPrioritizedReplayBuffer<Observation, std::int64_t>;
using Frames = rb::SharedCircularBuffer<std::array<std::uint8_t, 2048>, std::int64_t>;

template <class Row>
static Row row_of(std::int64_t number, std::int64_t action) {
  using Element = typename decltype(Row::observation)::value_type;
  Row row;
  row.observation.fill(static_cast<Element>(number));
  row.action = action;
  row.reward = static_cast<float>(number);
  row.next_observation.fill(static_cast<Element>(number + 1));
  row.done = number % 5 == 0;
  return row;
}

template <class Values>
static std::string list(const Values& values) {
  std::ostringstream out;
  out.precision(9);
  const char* between = "[";
  for (const auto& value : values) out << std::exchange(between, ", ") << value;
  return values.empty() ? "[]" : out.str() + "]";
}

static std::string config_of(const rb::BufferConfig& c) {
  std::ostringstream out;
  out.precision(17);
  out << "{\"capacity\": " << c.capacity << ", \"strategy\": " << static_cast<int>(c.strategy)
      << ", \"storage\": " << static_cast<int>(c.storage) << ", \"alpha\": " << c.alpha
      << ", \"beta\": " << c.beta << ", \"enable_compression\": " << c.enable_compression
      << ", \"epsilon\": " << c.epsilon << ", \"weights\": " << static_cast<int>(c.weights)
      << ", \"cer\": " << c.cer << ", \"max_times_sampled\": " << c.max_times_sampled
      << ", \"seed\": " << c.seed << ", \"block_rows\": " << c.block_rows
      << ", \"min_size\": " << c.min_size << ", \"samples_per_insert\": " << c.samples_per_insert
      << ", \"tolerance\": " << c.tolerance << ", \"durable\": " << c.durable
      << ", \"beta_end\": " << c.beta_end << ", \"beta_steps\": " << c.beta_steps
      << ", \"arena_bytes\": " << c.arena_bytes << "}";
  return out.str();
}

template <class Buffer>
static void draw(Buffer& buffer, std::size_t n, std::size_t batches) {
  std::ostringstream out;
  for (std::size_t i = 0; i < batches; ++i) {
    std::vector<typename Buffer::Row> rows(n);
    std::vector<std::size_t> ids(n);
    std::vector<float> weights;
    if constexpr (std::is_same_v<Buffer, Prioritized>) {
      weights.resize(n);
      buffer.sample(rows, ids, weights);
    } else {
      buffer.sample(rows, ids);
    }
    std::vector<float> seen;  // in every column
    for (const auto& row : rows) {
      seen.push_back(static_cast<float>(row.observation.back()));
      seen.push_back(static_cast<float>(row.action));
      seen.push_back(row.reward);
      seen.push_back(static_cast<float>(row.next_observation.back()));
      seen.push_back(row.done ? 1.0F : 0.0F);
    }
    out << (i == 0 ? "[" : ", ") << "{\"ids\": " << list(ids) << ", \"weights\": " << list(weights)
        << ", \"seen\": " << list(seen) << "}";
  }
  std::cout << out.str() << "]" << std::endl;
}

template <class Buffer>
static void obey(Buffer& buffer, std::istringstream& line) {
  using Row = typename Buffer::Row;
  std::string command;
  line >> command;
  if (command == "config") {
    std::cout << config_of(buffer.config()) << std::endl;
  } else if (command == "size") {
    std::cout << buffer.size() << std::endl;
  } else if (command == "fill") {
    std::int64_t n = 0;
    line >> n;
    std::vector<std::size_t> ids;
    for (std::int64_t i = 0; i < n; ++i) ids.push_back(buffer.add(row_of<Row>(i, i % 4)));
    std::cout << list(ids) << std::endl;
  } else if (command == "add") {
    std::int64_t action = 0;
    line >> action;
    std::cout << buffer.add(row_of<Row>(1000, action)) << std::endl;
  } else if (command == "update") {
    float priority = 0;
    line >> priority;
    std::size_t updated = 0;
    if constexpr (std::is_same_v<Buffer, Prioritized>) {
      const std::vector<std::size_t> ids = buffer.latest(4);
      updated = buffer.update_priorities(ids, std::vector<float>(ids.size(), priority));
    }
    std::cout << updated << std::endl;
  } else if (command == "draw") {
    std::size_t n = 0;
    std::size_t batches = 0;
    line >> n >> batches;
    draw(buffer, n, batches);
  }
}

template <class Buffer>
static void serve(Buffer buffer) {
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    try {
      obey(buffer, words);
    } catch (const rb::Error& error) {
      std::cout << "{\"error\": " << static_cast<int>(error.code()) << "}" << std::endl;
    }
  }
}

static rb::BufferConfig config_from(const std::map<std::string, double>& given) {
  rb::BufferConfig config;
  const auto get = [&](const char* name, auto& option) {
    const auto at = given.find(name);
    if (at != given.end()) option = static_cast<std::decay_t<decltype(option)>>(at->second);
  };
  const auto choose = [&]<class Choice>(const char* name, Choice& option) {
    const auto at = given.find(name);
    if (at != given.end()) option = static_cast<Choice>(static_cast<std::uint32_t>(at->second));
  };
  get("capacity", config.capacity);
  choose("strategy", config.strategy);
  choose("storage", config.storage);
  get("alpha", config.alpha);
  get("beta", config.beta);
  get("epsilon", config.epsilon);
  choose("weights", config.weights);
  get("cer", config.cer);
  get("max_times_sampled", config.max_times_sampled);
  get("seed", config.seed);
  get("block_rows", config.block_rows);
  get("min_size", config.min_size);
  get("samples_per_insert", config.samples_per_insert);
  get("tolerance", config.tolerance);
  get("durable", config.durable);
  get("enable_compression", config.enable_compression);
  get("expected", config.expected);
  get("arena_bytes", config.arena_bytes);
  get("beta_end", config.beta_end);
  get("beta_steps", config.beta_steps);
  return config;
}

int main(int argc, char** argv) try {
  const std::string verb = argc > 2 ? argv[1] : "";
  if (verb == "create" || verb == "create-frames") {
    std::map<std::string, double> given;
    for (int i = 3; i < argc; ++i) {
      const std::string option = argv[i];
      const std::size_t at = option.find('=');
      given[option.substr(0, at)] = std::stod(option.substr(at + 1));
    }
    const rb::BufferConfig config = config_from(given);
    verb == "create" ? serve(Circular::create(argv[2], config))
                     : serve(Frames::create(argv[2], config));
  } else if (verb == "open-frames") {
    serve(Frames::open(argv[2]));
  } else if (verb == "open") {
    const rb::SamplingStrategy strategy = Circular::open(argv[2], true).config().strategy;
    const bool weighted =
        strategy == rb::SamplingStrategy::Prioritized || strategy == rb::SamplingStrategy::Rank;
    weighted ? serve(Prioritized::open(argv[2])) : serve(Circular::open(argv[2]));
  } else {
    return 2;
  }
  return 0;
} catch (const rb::Error& error) {
  std::cout << "{\"error\": " << static_cast<int>(error.code()) << "}" << std::endl;
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
