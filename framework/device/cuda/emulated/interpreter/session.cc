#include "session.h"

#include <dlfcn.h>
#include <malloc.h>
#include <string.h>
#include <time.h>

#include <algorithm>
#include <iostream>
#include <sstream>
#include <thread>

namespace interpreter {
namespace {

double seconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

// The second argument of a kernel that was compiled for the CPU (mscclpp::LaunchShape).
struct Shape {
  uint32_t grid, block, shared, reserved;
};

}  // namespace

std::vector<char> Session::payload(size_t bytes) {
  std::vector<char> out(bytes);
  std::cin.read(out.data(), static_cast<std::streamsize>(bytes));
  if (static_cast<size_t>(std::cin.gcount()) != bytes) throw ptx::Error("the input ends early");
  return out;
}

void Session::serve() {
  for (std::string line; std::getline(std::cin, line);) {
    std::string out;
    try {
      out = answer(line);
    } catch (const std::exception& e) {
      out = "failed " + std::to_string(strlen(e.what())) + "\n" + e.what();
    }
    std::cout << out << std::flush;
  }
}

std::string Session::answer(const std::string& line) {
  std::istringstream words(line);
  words >> std::ws;
  std::string command, name;
  uint64_t at = 0, bytes = 0;
  words >> command;
  if (command == "image") return image(words);
  if (command == "launch") return launch(words);
  if (command == "run") return run(words);
  if (command == "cpu") return cpu(words);
  if (command == "mutants") return mutants(words);
  if (command == "memory") {
    int rank;
    words >> rank >> name >> at >> bytes;
    space_.map(rank, name, at, bytes);
  } else if (command == "window") {
    std::vector<char*> copies;
    words >> name >> at >> bytes;
    for (uint64_t copy; words >> copy;) copies.push_back(reinterpret_cast<char*>(copy));
    space_.window(name, at, bytes, std::move(copies));
  } else if (command == "write") {
    words >> at >> bytes;
    const std::vector<char> data = payload(bytes);
    memcpy(reinterpret_cast<void*>(at), data.data(), bytes);
  } else if (command == "read") {
    words >> at >> bytes;
    return "ok " + std::to_string(bytes) + "\n" + std::string(reinterpret_cast<const char*>(at), bytes);
  } else if (command == "save") {
    space_.save();
  } else if (command == "restore") {
    space_.restore();
  } else if (command == "expect") {  // the present content
    words >> at >> bytes;
    const char* from = reinterpret_cast<const char*>(at);
    checks_.push_back({at, std::vector<char>(from, from + bytes)});
  } else if (command == "mutate") {
    for (auto& [at, original] : mutated_) *at = original;
    mutated_.clear();
    for (int64_t n = -1; words >> n && n >= 0;) {
      const Mutant& m = mutants_.at(static_cast<size_t>(n));
      if (!mutated_.emplace(m.at, *m.at).second) continue;  // one weakening of an instruction
      m.apply(m.at);
    }
  } else if (command == "reset") {
    queue_.clear();
    checks_.clear();
    space_.clear();
  } else {
    throw ptx::Error("unknown command '" + command + "'");
  }
  return "ok\n";
}

std::string Session::image(std::istream& words) {
  std::string name;
  size_t bytes = 0;
  words >> name >> bytes;
  const std::vector<char> text = payload(bytes);
  programs_[name] = ptx::parse(name, std::string(text.begin(), text.end()));
  const auto& p = *programs_[name];
  size_t entries = 0;
  for (const auto& [n, f] : p.functions) entries += f->entry;
  return "ok " + std::to_string(p.instructions) + " " + std::to_string(entries) + "\n";
}

std::string Session::launch(std::istream& words) {
  Queued q;
  std::string image, entry;
  size_t bytes = 0;
  words >> image >> entry >> q.launch.rank >> q.stream >> q.launch.grid >> q.launch.block >> q.launch.shared >> q.launch.overlap >> q.launch.cluster >> bytes;
  q.launch.cluster = std::max(1u, q.launch.cluster);
  q.launch.arguments = payload(bytes);
  const auto p = programs_.find(image);
  if (p == programs_.end()) throw ptx::Error("no image " + image);
  q.launch.program = p->second.get();
  q.launch.entry = q.launch.program->entry(entry);
  if (q.launch.entry == nullptr) throw ptx::Error("no entry " + entry + " in " + image);
  if (static_cast<size_t>(q.launch.entry->parameter_bytes) != bytes) {
    throw ptx::Error(entry + ": " + std::to_string(bytes) + " bytes of arguments, expected " + std::to_string(q.launch.entry->parameter_bytes));
  }
  if (q.launch.block > static_cast<uint32_t>(q.launch.entry->max_threads)) throw ptx::Error(entry + ": too many threads in a block");
  queue_.push_back(std::move(q));
  return "ok\n";
}

Session::Run Session::schedule(uint64_t seed, bool races, uint64_t most) {
  Run out;
  ptx::Machine machine(space_, races ? &detector_ : nullptr);
  for (const Queued& q : queue_) machine.add(q.launch, q.stream);
  ptx::Options options;
  options.seed = seed;
  options.most = most;
  try {
    machine.run(options);
    for (const Check& c : checks_) {
      const char* got = reinterpret_cast<const char*>(c.at);
      size_t k = 0;
      while (k < c.bytes.size() && got[k] == c.bytes[k]) ++k;
      if (k == c.bytes.size()) continue;
      const ptx::Region* r = space_.find(c.at);
      throw ptx::Error("wrong result in " + r->name + " at byte " + std::to_string(k));
    }
  } catch (const ptx::Error& e) {
    out.failed = e.what();
  }
  out.counts = machine.counts;
  out.races = races ? detector_.found() : 0;
  if (out.failed.empty() && out.races > 0) {
    out.failed = std::to_string(out.races) + " races:";
    for (const std::string& r : detector_.reports()) out.failed += "\n" + r;
  }
  return out;
}

// run FIRST COUNT RACES MOST: so many schedules, each from the saved memory, until one fails.
std::string Session::run(std::istream& words) {
  uint64_t first = 1, count = 1, most = 4000000000ull, instructions = 0, together = 0, multimem = 0;
  int races = 0;
  words >> first >> count >> races >> most;
  const double start = seconds();
  for (uint64_t seed = first; seed < first + count; ++seed) {
    space_.restore();
    const Run r = schedule(seed, races != 0, most);
    if (!r.failed.empty()) throw ptx::Error("schedule " + std::to_string(seed) + ": " + r.failed);
    instructions += r.counts.instructions;
    together += r.counts.warp_instructions;
    multimem += r.counts.multimem;
  }
  std::ostringstream out;
  out << "ok " << instructions << " " << together << " " << multimem << " " << static_cast<uint64_t>((seconds() - start) * 1e6) << "\n";
  return out.str();
}

// cpu PATH: the same launches by the kernels of a library, one thread a stream of a rank.
std::string Session::cpu(std::istream& words) {
  std::string path;
  words >> path;
  void*& library = libraries_[path];
  if (library == nullptr) library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw ptx::Error(dlerror());
  space_.restore();
  using Kernel = void (*)(const void*, const void*);
  std::map<std::pair<int, int>, std::vector<const ptx::Launch*>> streams;
  for (const Queued& q : queue_) {
    if (dlsym(library, q.launch.entry->name.c_str()) == nullptr) throw ptx::Error("no " + q.launch.entry->name + " in " + path);
    streams[{q.launch.rank, q.stream}].push_back(&q.launch);
  }
  std::vector<std::thread> threads;
  for (auto& [key, launches] : streams) {
    threads.emplace_back([library, &launches = launches] {
      for (const ptx::Launch* l : launches) {
        const Shape shape = {l->grid, l->block, l->shared, 0};
        reinterpret_cast<Kernel>(dlsym(library, l->entry->name.c_str()))(l->arguments.data(), &shape);
      }
    });
  }
  for (auto& t : threads) t.join();
  return "ok\n";
}

std::string Session::mutants(std::istream& words) {
  std::string name;
  words >> name;
  if (!mutated_.empty()) throw ptx::Error("an instruction is mutated");
  mutants_ = mutants_of(*programs_.at(name));
  std::ostringstream out;
  for (const Mutant& m : mutants_) out << m.how << "\t" << m.text << "\n";
  return "ok " + std::to_string(out.str().size()) + "\n" + out.str();
}

}  // namespace interpreter

int main() {
  // Each schedule takes the memory that the last one gave back: the kernel would clear it anew.
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  interpreter::Session().serve();
  return 0;
}
