// Code objects as they are, executed by a machine of interpreted GPUs in another process, which all processes of a job share:
// HIP_EMULATED_MACHINE names its socket.
#ifndef EMULATED_HIP_MACHINE_H_
#define EMULATED_HIP_MACHINE_H_

#include <mutex>

#include "api.h"

// Connects, if there is a machine: 0, or an error.
int machine_connect(const char* arch);

// Locks the list of allocations that launches send to the machine, until the caller has said whether its new allocation is uncached.
std::unique_lock<std::mutex> machine_allocations();

// Device memory was allocated at an address, behind a handle, or mapped. Others may be given it at once, so the machine learns of
// it now; all else it learns before a launch.
void machine_allocated(DevicePtr address, bool uncached);
void machine_created(AllocationHandle handle, bool uncached);
void machine_mapped();

#endif  // EMULATED_HIP_MACHINE_H_
