// The program: runs every benchmark in many short repeats and prints one line for each, with the
// best and the median. The machine's noise only ever adds time, so the best is what is compared.
//
// A counter "target_ns" is the most the best may be. Other counters are shown as their medians, as
// times where their names end in "_ns". The flags of Google Benchmark work;
// --benchmark_repetitions=100 gives numbers to rely on.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

namespace {

double median(std::vector<double> numbers) {
  const auto middle = numbers.begin() + static_cast<std::ptrdiff_t>(numbers.size() / 2);
  std::nth_element(numbers.begin(), middle, numbers.end());
  return *middle;
}

std::string scaled(double number, const std::vector<const char*>& units) {
  std::size_t unit = 0;
  for (; number >= 1000 && unit + 1 < units.size(); ++unit) number /= 1000;
  char text[48];
  std::snprintf(text, sizeof(text), "%.*f %s", number < 100 ? 1 : 0, number, units[unit]);
  return text;
}
std::string duration(double ns) { return scaled(ns, {"ns", "us", "ms", "s"}); }

class Table : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context& /*context*/) override {
    std::printf("%-52s %10s %10s\n", "C++, time a call", "best", "median");
    return true;
  }

  void ReportRuns(const std::vector<Run>& runs) override {
    std::vector<double> times;
    for (const Run& run : runs) {
      if (run.run_type == Run::RT_Iteration) times.push_back(run.GetAdjustedRealTime());
    }
    if (times.empty()) return;  // the aggregates, which come by themselves
    const double best = *std::min_element(times.begin(), times.end());
    std::string name = runs[0].run_name.function_name;
    if (!runs[0].run_name.args.empty()) name += " " + runs[0].run_name.args;
    std::printf("%-52s %10s %10s", name.c_str(), duration(best).c_str(),
                duration(median(times)).c_str());
    for (const auto& [counter, value] : runs[0].counters) {
      if (counter == "target_ns") {
        std::printf("  target %s: %s", duration(value).c_str(), best <= value ? "pass" : "MISS");
      } else if (counter.ends_with("_ns")) {
        std::printf("  %s %s", counter.substr(0, counter.size() - 3).c_str(),
                    duration(middle(runs, counter)).c_str());
      } else {
        std::printf("  %s %s", counter.c_str(),
                    scaled(middle(runs, counter), {"", "k", "M", "G"}).c_str());
      }
    }
    std::printf("\n");
    std::fflush(stdout);
  }

 private:
  static double middle(const std::vector<Run>& runs, const std::string& counter) {
    std::vector<double> values;
    for (const Run& run : runs) {
      if (run.run_type == Run::RT_Iteration) values.push_back(run.counters.at(counter));
    }
    return median(std::move(values));
  }
};

}  // namespace

int main(int count, char** given) {
  // Before what was given, which therefore wins.
  std::string defaults[] = {"--benchmark_repetitions=20", "--benchmark_min_time=0.003"};
  std::vector<char*> arguments = {given[0], defaults[0].data(), defaults[1].data()};
  arguments.insert(arguments.end(), given + 1, given + count);
  int total = static_cast<int>(arguments.size());
  arguments.push_back(nullptr);
  benchmark::Initialize(&total, arguments.data());
  if (benchmark::ReportUnrecognizedArguments(total, arguments.data())) return 1;
  Table table;
  benchmark::RunSpecifiedBenchmarks(&table);
  benchmark::Shutdown();
  return 0;
}
