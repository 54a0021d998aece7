// Making, opening, saving and removing segments.
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <utility>

#include "core/checkpoint.h"
#include "core/codec.h"
#include "core/verify.h"
#include "os/directory.h"
#include "python/errors.h"
#include "python/local.h"

namespace nb = nanobind;

namespace replay_buffer::python {
namespace {

// name, dtype, shape (0: any length), limit, codec, ratio, expected, padded
using ColumnArgument = std::tuple<std::string, std::uint32_t, std::vector<std::uint64_t>,
                                  std::uint64_t, std::uint16_t, double, std::uint32_t, bool>;

Schema to_schema(const std::vector<ColumnArgument>& columns) {
  Schema schema;
  for (const auto& [name, dtype, shape, limit, codec, ratio, expected, padded] : columns) {
    schema.push_back({name, static_cast<DType>(dtype), shape, limit, static_cast<Codec>(codec),
                      ratio, expected, padded});
  }
  return schema;
}

nb::list from_schema(const Schema& schema) {
  nb::list columns;
  for (const Column& c : schema) {
    nb::list shape;
    for (std::uint64_t n : c.shape) shape.append(n);
    columns.append(nb::make_tuple(c.name, static_cast<std::uint32_t>(c.dtype), shape, c.limit,
                                  static_cast<std::uint16_t>(c.codec), c.ratio, c.expected,
                                  c.padded));
  }
  return columns;
}

BufferConfig to_config(const nb::dict& options) {
  BufferConfig config;
  config.capacity = nb::cast<std::uint64_t>(options["capacity"]);
  config.strategy = static_cast<SamplingStrategy>(nb::cast<std::uint32_t>(options["strategy"]));
  config.storage = static_cast<Storage>(nb::cast<std::uint32_t>(options["storage"]));
  config.alpha = nb::cast<float>(options["alpha"]);
  config.beta = nb::cast<float>(options["beta"]);
  config.beta_end = nb::cast<float>(options["beta_end"]);
  config.beta_steps = nb::cast<std::uint64_t>(options["beta_steps"]);
  config.epsilon = nb::cast<float>(options["epsilon"]);
  config.weights = static_cast<WeightScale>(nb::cast<std::uint32_t>(options["weights"]));
  config.cer = nb::cast<bool>(options["cer"]);
  config.max_times_sampled = nb::cast<std::uint32_t>(options["max_times_sampled"]);
  config.seed = nb::cast<std::uint64_t>(options["seed"]);
  config.block_rows = nb::cast<std::uint64_t>(options["block_rows"]);
  config.min_size = nb::cast<std::uint64_t>(options["min_size"]);
  config.samples_per_insert = nb::cast<double>(options["samples_per_insert"]);
  config.tolerance = nb::cast<double>(options["tolerance"]);
  config.durable = nb::cast<bool>(options["durable"]);
  config.enable_compression = nb::cast<bool>(options["enable_compression"]);
  return config;
}

os::Access access_of(bool readonly) {
  return readonly ? os::Access::kRead : os::Access::kReadWrite;
}

Existing existing(bool overwrite) { return overwrite ? Existing::kReplace : Existing::kRefuse; }

std::unique_ptr<Local> local_of(std::shared_ptr<Buffer> buffer) {
  auto local = std::make_unique<Local>();
  use(*local, std::move(buffer));
  return local;
}

std::unique_ptr<Local> create(const std::string& location,
                              const std::vector<ColumnArgument>& columns, const nb::dict& options,
                              bool overwrite) {
  const Location where = Location::parse(location);
  const Schema schema = to_schema(columns);
  const BufferConfig config = to_config(options);
  check_codecs(schema);
  std::shared_ptr<Buffer> buffer;
  {
    const CoreCall call(where.kind == Location::Kind::kHeap ? 0 : CoreCall::kWaits);
    buffer =
        std::make_shared<Buffer>(Segment::create(where, config, schema, {}, existing(overwrite)));
  }
  return local_of(std::move(buffer));
}

std::unique_ptr<Local> open(const std::string& location, bool readonly) {
  const Location where = Location::parse(location);
  std::shared_ptr<Buffer> buffer;
  {
    const CoreCall call(CoreCall::kWaits);
    buffer = std::make_shared<Buffer>(Segment::open(where, access_of(readonly)));
  }
  return local_of(std::move(buffer));
}

// One whose file another process handed over; takes the descriptor over. Its open file description
// is shared with that process, and so are its locks: this one needs its own.
std::unique_ptr<Local> adopt(int fd, const std::string& location, bool readonly) {
  const Location where = Location::parse(location);
  std::shared_ptr<Buffer> buffer;
  {
    const os::File given = os::File::from_fd(fd);
    const CoreCall call(CoreCall::kWaits);
    buffer = std::make_shared<Buffer>(
        Segment::adopt(given.reopen(access_of(readonly)), where, access_of(readonly)));
  }
  return local_of(std::move(buffer));
}

// What the segment says of itself: the options it was made with and its columns.
nb::dict facts(const Local& local) {
  const Buffer& buffer = opened(local);
  const Settings& s = buffer.layout().settings;
  nb::dict d;
  d["capacity"] = s.capacity;
  d["strategy"] = s.strategy;
  d["storage"] = s.storage;
  d["alpha"] = buffer.ring().alpha();
  d["beta"] = s.beta;
  d["beta_end"] = s.beta_end;
  d["beta_steps"] = s.beta_steps;
  d["epsilon"] = s.epsilon;
  d["weights"] = s.weights;
  d["cer"] = s.cer != 0;
  d["max_times_sampled"] = s.max_times_sampled;
  d["seed"] = s.seed;
  d["block_rows"] = s.block_rows;
  d["min_size"] = s.min_size;
  d["samples_per_insert"] = s.samples_per_insert;
  d["tolerance"] = s.tolerance;
  d["durable"] = s.durable != 0;
  d["enable_compression"] = s.enable_compression != 0;
  d["columns"] = from_schema(buffer.layout().schema);
  return d;
}

std::vector<std::string> violations(const Local& local) {
  opened(local);
  const std::shared_ptr<Buffer> keep = local.buffer;
  const CoreCall call(CoreCall::kWaits);
  return verify(keep->ring(), keep->owners());
}

nb::dict save(const Local& local, const std::string& path) {
  opened(local);
  const std::shared_ptr<Buffer> keep = local.buffer;
  CheckpointResult result;
  {
    const CoreCall call(CoreCall::kWaits);
    result = write_checkpoint(keep->ring(), path, keep->room());
  }
  nb::dict d;
  d["rows"] = result.rows;
  d["bytes"] = result.bytes;
  d["bytes_written"] = result.bytes_written;
  return d;
}

std::unique_ptr<Local> restore(const std::string& path, const std::string& location, bool limiter,
                               bool overwrite) {
  const Location where = Location::parse(location);
  std::shared_ptr<Buffer> buffer;
  {
    const CoreCall call(CoreCall::kWaits);
    std::vector<Room> room;
    buffer = std::make_shared<Buffer>(
        restore_checkpoint(path, where, limiter, &room, existing(overwrite)));
    buffer->resume(room);
  }
  return local_of(std::move(buffer));
}

using IdentityTuple = std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>;

IdentityTuple identity(const Local& local) {
  const SegmentIdentity own = opened(local).ring().segment->identity();
  return {own.file.device, own.file.inode, own.lineage};
}

bool remove_own(const std::string& location, const IdentityTuple& own) {
  const Location where = Location::parse(location);
  const CoreCall call(CoreCall::kWaits);
  return Segment::remove(where, {{std::get<0>(own), std::get<1>(own)}, std::get<2>(own)});
}

int descriptor(const Local& local) {
  const os::File* file = opened(local).ring().segment->file();
  return file == nullptr ? -1 : file->fd();
}

}  // namespace

void bind_lifecycle(nb::module_& m, nb::class_<Local>& local) {
  local.def_static("create", &create)
      .def_static("open", &open)
      .def_static("adopt", &adopt)
      .def_static("restore", &restore)
      .def("save", &save)
      .def("facts", &facts)
      .def("descriptor", &descriptor)
      .def("identity", &identity)
      .def("verify", &violations)
      .def("flush", [](const Local& l) {
        const std::shared_ptr<Buffer> keep = l.buffer;
        opened(l);
        const CoreCall call(CoreCall::kWaits);
        keep->flush();
      });
  m.def("plan", [](const std::vector<ColumnArgument>& columns, const nb::dict& options) {
    const BufferConfig config = to_config(options);
    const Schema schema = with_codecs(config, to_schema(columns));
    const Layout layout = plan_layout(make_settings(config, schema), schema);
    return nb::make_tuple(layout.row_bytes, layout.total_bytes);
  });
  m.def("with_codecs", [](const std::vector<ColumnArgument>& columns) {
    BufferConfig config;
    config.enable_compression = true;
    return from_schema(with_codecs(config, to_schema(columns)));
  });
  m.def("check_location", [](const std::string& location) {
    const Location where = Location::parse(location);
    return nb::make_tuple(static_cast<int>(where.kind), where.name);
  });
  m.def("remove", [](const std::string& location, bool only_stale) {
    return Segment::remove(Location::parse(location), only_stale);
  });
  m.def("remove_own", &remove_own);
  m.def("unlink", [](const std::string& location) { Segment::unlink(Location::parse(location)); });
  m.def("list_shared_memory", &os::list_shared_memory);
}

}  // namespace replay_buffer::python
