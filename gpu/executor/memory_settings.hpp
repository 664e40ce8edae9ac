#pragma once

namespace parcae {

/// How a processor's memory for tensors is had: what is freed stays with the process, and tensors from 2 MiB on get
/// huge pages, if the system has them for who asks (`THP_MEM_ALLOC_ENABLE=0` in the environment: they do not). Made
/// once for the process, further calls do nothing. A program calls it before it has threads and before LibTorch takes
/// memory: that reads the environment then, and the process must not change it while others read.
void keep_memory_for_tensors();

/// What is kept and not in use goes back to the system: a job is over. Takes some 60 ms for each GiB, in which other
/// threads wait who take or free memory.
void give_back_memory();

} // namespace parcae
