/* A stand-in for NVIDIA's libcuda and libnvidia-ml: the calls that iriscw makes, with the driver's states and results.
 *
 * It is no GPU. It tests what iriscw does with a driver, and says nothing about the driver.
 *
 * Everything is in files of the folder in which this library lies:
 *   PID          a process with a CUDA context: "STATE BYTES BROKEN"; one without a file has none
 *   free         free memory of the one GPU in bytes
 *   VERB.code    a result that VERB gives, before it does anything
 *   VERB.before  VERB hangs before it does anything, once it has made VERB.hangs
 *   VERB.after   VERB hangs when it is done, likewise
 *   locked-for   the timeout of the last lock in milliseconds
 *   moved        the GPU pairs of the last restore, in hex
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RUNNING, LOCKED, CHECKPOINTED, FAILED };
enum { OK = 0, NO_MEMORY = 2, INVALID = 1, OS_ERROR = 304, ILLEGAL = 401 };

struct pair { unsigned char old[16], new[16]; };
struct lock_args { unsigned int timeout_ms, reserved; unsigned long long more[7]; };
struct restore_args { struct pair *pairs; unsigned int count; char reserved[64 - sizeof(void *) - sizeof(unsigned int)]; };

static const char *path(const char *format, ...) {
    static char out[4096];
    Dl_info info;
    dladdr((void *)path, &info);
    strcpy(out, info.dli_fname);
    char *name = strrchr(out, '/') + 1;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(name, 256, format, arguments);
    va_end(arguments);
    return out;
}

static int there(const char *name) { return access(name, F_OK) == 0; }

static void put(const char *name, const char *text) {
    FILE *file = fopen(name, "w");
    fputs(text, file);
    fclose(file);
}

static int find(int pid, int *state, unsigned long long *bytes, int *broken) {
    FILE *file = fopen(path("%d", pid), "r");
    if (!file) return 0;
    int read = fscanf(file, "%d %llu %d", state, bytes, broken);
    fclose(file);
    return read == 3;
}

static void keep(int pid, int state, unsigned long long bytes, int broken) {
    char text[100];
    snprintf(text, sizeof text, "%d %llu %d", state, bytes, broken);
    put(path("%d", pid), text);
}

static unsigned long long gpu_free(void) {
    unsigned long long found = 0;
    FILE *file = fopen(path("free"), "r");
    if (file) {
        if (fscanf(file, "%llu", &found) != 1) abort();
        fclose(file);
    }
    return found;
}

static void set_free(unsigned long long bytes) {
    char text[40];
    snprintf(text, sizeof text, "%llu", bytes);
    put(path("free"), text);
}

static int ordered(const char *verb) {
    int code = OK;
    FILE *file = fopen(path("%s.code", verb), "r");
    if (file) {
        if (fscanf(file, "%d", &code) != 1) abort();
        fclose(file);
    }
    return code;
}

static void hang(const char *verb, const char *when) {
    if (!there(path("%s.%s", verb, when))) return;
    char pid[40];
    snprintf(pid, sizeof pid, "%d", getpid());
    char *new = strdup(path("%s.hanging", verb)), *whole = strdup(path("%s.hangs", verb));
    put(new, pid);
    rename(new, whole); /* it is there when it is whole */
    for (;;) pause();
}

int cuInit(unsigned int flags) { (void)flags; hang("init", "before"); return ordered("init"); }
int cuDriverGetVersion(int *version) { *version = 12080; return OK; }

int cuCheckpointProcessGetState(int pid, int *out) {
    int state, broken;
    unsigned long long bytes;
    int code = ordered("state");
    hang("state", "before");
    if (code) return code;
    if (!find(pid, &state, &bytes, &broken)) return OS_ERROR;
    *out = state;
    return OK;
}

int cuCheckpointProcessGetRestoreThreadId(int pid, int *thread) {
    int state, broken;
    unsigned long long bytes;
    int code = ordered("restore-thread");
    if (code) return code;
    if (!find(pid, &state, &bytes, &broken)) return INVALID;
    *thread = pid;
    return OK;
}

/* One step of the state machine: from one state to another one, or the driver's refusal. */
static int step(const char *verb, int pid, int from, int to) {
    int state, broken, code = ordered(verb);
    unsigned long long bytes;
    hang(verb, "before");
    if (code) return code;
    if (!find(pid, &state, &bytes, &broken)) return OS_ERROR;
    if (broken) return strcmp(verb, "restore") == 0 ? OS_ERROR : ILLEGAL;
    if (state != from) return ILLEGAL;
    if (to == CHECKPOINTED) set_free(gpu_free() + bytes);
    if (from == CHECKPOINTED) {
        if (bytes > gpu_free()) {
            keep(pid, state, bytes, 1); /* for ever after: restore gives 304, unlock 401 */
            return NO_MEMORY;
        }
        set_free(gpu_free() - bytes);
    }
    keep(pid, to, bytes, 0);
    hang(verb, "after");
    return OK;
}

int cuCheckpointProcessLock(int pid, struct lock_args *args) {
    char text[40];
    snprintf(text, sizeof text, "%u", args->timeout_ms);
    put(path("locked-for"), text);
    return step("lock", pid, RUNNING, LOCKED);
}

int cuCheckpointProcessCheckpoint(int pid, void *args) { (void)args; return step("checkpoint", pid, LOCKED, CHECKPOINTED); }

int cuCheckpointProcessRestore(int pid, struct restore_args *args) {
    FILE *file = fopen(path("moved"), "w");
    for (unsigned int at = 0; at < args->count; at++) {
        for (int byte = 0; byte < 16; byte++) fprintf(file, "%02x", args->pairs[at].old[byte]);
        fputc('>', file);
        for (int byte = 0; byte < 16; byte++) fprintf(file, "%02x", args->pairs[at].new[byte]);
        fputc('\n', file);
    }
    fclose(file);
    return step("restore", pid, CHECKPOINTED, LOCKED);
}

int cuCheckpointProcessUnlock(int pid, void *args) { (void)args; return step("unlock", pid, LOCKED, RUNNING); }

/* libnvidia-ml: one GPU of 16 GiB; the processes are those that the file `on-gpu` lists: "PID BYTES" a line. */
#define TOTAL (16ULL << 30)
struct memory { unsigned long long total, free, used; };
struct process { unsigned int pid; unsigned long long used; unsigned int gpu, compute; };

int nvmlInit_v2(void) { return ordered("nvml"); }
int nvmlDeviceGetCount_v2(unsigned int *count) { *count = 1; return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **device) { *device = (void *)(1UL + index); return OK; }
int nvmlSystemGetDriverVersion(char *text, unsigned int size) { snprintf(text, size, "580.105.08"); return OK; }
int nvmlDeviceGetName(void *device, char *text, unsigned int size) { (void)device; snprintf(text, size, "Stand-in"); return OK; }
int nvmlDeviceGetUUID(void *device, char *text, unsigned int size) {
    (void)device;
    snprintf(text, size, "GPU-00000000-0000-0000-0000-000000000001");
    return OK;
}
int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory) {
    (void)device;
    *memory = (struct memory){TOTAL, gpu_free(), TOTAL - gpu_free()};
    return OK;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned int *count, struct process *processes) {
    (void)device;
    unsigned int found = 0;
    FILE *file = fopen(path("on-gpu"), "r");
    while (file && fscanf(file, "%u %llu", &processes[found].pid, &processes[found].used) == 2) found++;
    if (file) fclose(file);
    *count = found;
    return OK;
}
