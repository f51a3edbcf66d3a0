// Kernel images: shared objects for the CPU, given as such, or standing for PTX.
#ifndef EMULATED_IMAGE_H_
#define EMULATED_IMAGE_H_

#include <map>
#include <memory>
#include <string>

#include "api.h"
#include "program.h"

// The properties of an entry point in PTX.
struct Entry {
  size_t parameters = 0;  // bytes
  int max_threads = 1024;
};

// The entry points of a PTX text.
std::map<std::string, Entry> parse_ptx(const std::string& text);

// Whether an ELF file is machine code of a GPU.
bool is_cubin(const void* data);

// The entry points of machine code that runs on the device. On failure answers the driver's error, and why.
int read_cubin(const void* data, std::map<std::string, Entry>* out, std::string* why);

// Whether an ELF file is a code object for AMD's GPUs, and the kernels in it.
bool is_code_object(const void* data);
int read_code_object(const void* data, std::map<std::string, Entry>* out);

// Names the CPU image that stands for a PTX text, or for machine code: 64-bit FNV-1a of it, in hexadecimal.
std::string image_name(const std::string& text);

struct Image {
  void* library = nullptr;
  int fd = -1;
  bool gpu = false;    // stands for PTX or machine code
  bool other = false;  // made of other sources than these, which are not believed
  std::map<std::string, Entry> entries;  // of these
  std::shared_ptr<const ptx::Program> program;  // interpreted, in place of the library
  uint64_t executed = 0;  // the executor's number of a code object, in place of the library
  ~Image();
};

// Loads an image: ELF or PTX. On failure answers the driver's error, and why.
int load_image(const void* data, const std::string& folder, std::shared_ptr<Image>* image, std::string* why);

#endif  // EMULATED_IMAGE_H_
