#include <string.h>
#include <sys/mman.h>

#include "session.h"

namespace interpreter {

void Space::map(int rank, const std::string& name, uint64_t at, uint64_t bytes) {
  void* p = mmap(reinterpret_cast<void*>(at), bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  if (p != reinterpret_cast<void*>(at)) throw ptx::Error("memory " + name + ": the address is taken");
  ptx::Region r;
  r.begin = at;
  r.end = at + bytes;
  r.rank = rank;
  r.name = name;
  regions_[at] = r;
}

// Its addresses are reserved: an access that the interpreter would let pass faults.
void Space::window(const std::string& name, uint64_t at, uint64_t bytes, std::vector<char*> copies) {
  void* p = mmap(reinterpret_cast<void*>(at), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  if (p != reinterpret_cast<void*>(at)) throw ptx::Error("window " + name + ": the address is taken");
  ptx::Region r;
  r.begin = at;
  r.end = at + bytes;
  r.name = name;
  r.copies = std::move(copies);
  regions_[at] = r;
}

const ptx::Region* Space::find(uint64_t at) {
  auto r = regions_.upper_bound(at);
  if (r == regions_.begin()) return nullptr;
  --r;
  return at < r->second.end ? &r->second : nullptr;
}

void Space::save() {
  saved_.clear();
  for (const auto& [at, r] : regions_) {
    if (!r.window()) saved_[at].assign(reinterpret_cast<const char*>(r.begin), reinterpret_cast<const char*>(r.end));
  }
}

void Space::restore() {
  for (const auto& [at, bytes] : saved_) memcpy(reinterpret_cast<void*>(at), bytes.data(), bytes.size());
}

void Space::clear() {
  for (const auto& [at, r] : regions_) munmap(reinterpret_cast<void*>(at), r.end - r.begin);
  regions_.clear();
  saved_.clear();
}

}  // namespace interpreter
