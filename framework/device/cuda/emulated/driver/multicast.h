// Multicast objects: a window over the memory that each of several devices has bound.
#ifndef EMULATED_MULTICAST_H_
#define EMULATED_MULTICAST_H_

#include "state.h"

struct SharedGroup;

// A part of a window that all devices have bound: offset and bytes in it, and the copy of each device in this process.
struct Part {
  uint64_t offset, bytes;
  std::vector<char*> copies;
};

// A multicast object, as this process has it. Its state is in memory that all processes share which imported it.
class Group {
 public:
  static std::shared_ptr<Group> create(uint32_t devices, uint64_t bytes, int handle_types);
  // Opens the object behind a descriptor; null if there is none.
  static std::shared_ptr<Group> open(int fd);
  ~Group();

  uint64_t bytes() const;
  int handle_types() const;
  int fd() const { return fd_; }
  int add(int physical);
  bool added(int physical) const;
  // Waits, without the lock, until all devices are added. A process whose peers never come waits for ever.
  void await_all(Lock& lock) const;
  int bind(int physical, uint64_t offset, const std::shared_ptr<Backing>& memory, uint64_t memory_offset, uint64_t bytes);
  int unbind(int physical, uint64_t offset, uint64_t bytes);
  // Whether this process has bound memory: any, or that one.
  bool binds() const { return !kept_.empty(); }
  bool binds(const Backing* memory) const;
  std::vector<Part> parts();

 private:
  Group() = default;
  char* copy_of(int pid, int fd, uint64_t inode, uint64_t offset, uint64_t bytes);

  int fd_ = -1;
  SharedGroup* shared_ = nullptr;
  std::map<int, std::shared_ptr<Backing>> kept_;  // by place among the bound ranges
  std::map<std::string, std::pair<char*, uint64_t>> mapped_;
};

// vmm.cc
Backing* memory_of(AllocationHandle handle);
// Whether this process has bound the memory to some object.
bool bound(const Backing* memory);

#endif  // EMULATED_MULTICAST_H_
