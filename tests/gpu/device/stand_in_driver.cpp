// A driver's library that finds as many GPUs as DEVICES says, and is for the CUDA that CAN says.

extern "C" {
int cuInit(unsigned flags) {
  return flags != 0 ? 1 : DEVICES > 0 ? 0 : 100;
}
int cuDriverGetVersion(int* can) {
  *can = CAN;
  return 0;
}
int cuDeviceTotalMem_v2(unsigned long* bytes, int device) {
  *bytes = (device + 40ul) << 30;
  return 0;
}
int cuDeviceGetCount(int* count) {
  *count = DEVICES;
  return 0;
}
int cuGetErrorName(int error, const char** text) {
  *text = error == 100 ? "CUDA_ERROR_NO_DEVICE" : "CUDA_ERROR_INVALID_VALUE";
  return 0;
}
}
