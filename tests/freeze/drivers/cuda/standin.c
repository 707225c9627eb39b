/* A stand-in for NVIDIA's libcuda and libnvidia-ml: the calls that iriscw makes, with the driver's states and results.
 *
 * It is no GPU. It tests what iriscw does with a driver, and says nothing about the driver. What it does is what NVIDIA's
 * pages and others' reports say: docs/criu.md, "CUDA", names them.
 *
 * Everything is in files of the folder in which this library lies:
 *   PID          a process with a CUDA context: "STATE BYTES BROKEN [BYTES2]"; one without a file has none
 *   free, free2  free memory of the first GPU in bytes, and of the second one, which is there if this file is
 *   inits        one line for each cuInit
 *   persistence  "1" if persistence mode is on
 *   needs-init   each call wants a cuInit before it
 *   communicator processes that share one: nobody is answered about one of them while another one is not running
 *   VERB.code    a result that VERB gives, before it does anything
 *   VERB.before  VERB hangs before it does anything, once it has made VERB.hangs
 *   VERB.after   VERB hangs when it is done, likewise
 *   locked-for   the timeout of the last lock in milliseconds
 *   moved        the GPU pairs of the last restore, in hex
 *   on-gpu, on-gpu2  what NVML says of the GPUs' processes: "PID BYTES" a line
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RUNNING, LOCKED, CHECKPOINTED, FAILED };
enum { OK = 0, INVALID = 1, NO_MEMORY = 2, NOT_INITIALIZED = 3, OS_ERROR = 304, ILLEGAL = 401 };
enum { GPUS = 2 };

static int started; /* cuInit was called in this process */

struct process_state { int state, broken; unsigned long long bytes[GPUS]; };

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

static int find(int pid, struct process_state *found) {
    FILE *file = fopen(path("%d", pid), "r");
    if (!file) return 0;
    found->bytes[1] = 0;
    int read = fscanf(file, "%d %llu %d %llu", &found->state, &found->bytes[0], &found->broken, &found->bytes[1]);
    fclose(file);
    return read >= 3;
}

static void keep(int pid, const struct process_state *now) {
    char text[100], *whole = strdup(path("%d", pid));
    int end = snprintf(text, sizeof text, "%d %llu %d", now->state, now->bytes[0], now->broken);
    if (now->bytes[1]) snprintf(text + end, sizeof text - end, " %llu", now->bytes[1]);
    put(path("%d.new", pid), text);
    rename(path("%d.new", pid), whole); /* others read it meanwhile */
    free(whole);
}

static const char *free_file(int gpu) { return path(gpu ? "free2" : "free"); }

static unsigned long long gpu_free(int gpu) {
    unsigned long long found = 0;
    FILE *file = fopen(free_file(gpu), "r");
    if (file) {
        if (fscanf(file, "%llu", &found) != 1) abort();
        fclose(file);
    }
    return found;
}

static void set_free(int gpu, unsigned long long bytes) {
    char text[40];
    snprintf(text, sizeof text, "%llu", bytes);
    put(free_file(gpu), text);
}

static int gpus(void) { return there(path("free2")) ? 2 : 1; }

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

/* Waits while another process of the communicator is not running, as was seen (NVIDIA/cuda-checkpoint#30). */
static void wait_for_peers(int pid) {
    for (int waits = 1; waits;) {
        int peer, member = 0;
        struct process_state other;
        FILE *file = fopen(path("communicator"), "r");
        for (waits = 0; file && fscanf(file, "%d", &peer) == 1;) {
            if (peer == pid) member = 1;
            else if (find(peer, &other) && other.state != RUNNING) waits = 1;
        }
        if (file) fclose(file);
        waits = waits && member;
        if (waits) usleep(10000);
    }
}

/* What each call begins with. */
static int begin(const char *verb, int pid) {
    int code = ordered(verb);
    hang(verb, "before");
    if (code) return code;
    if (there(path("needs-init")) && !started) return NOT_INITIALIZED;
    wait_for_peers(pid);
    return OK;
}

int cuInit(unsigned int flags) {
    (void)flags;
    FILE *file = fopen(path("inits"), "a");
    fputs("init\n", file);
    fclose(file);
    hang("init", "before");
    int code = ordered("init");
    started = code == OK;
    return code;
}
int cuDriverGetVersion(int *version) { *version = 12080; return ordered("version"); }

int cuCheckpointProcessGetState(int pid, int *out) {
    struct process_state now;
    int code = begin("state", pid);
    if (code) return code;
    if (!find(pid, &now)) return OS_ERROR;
    *out = now.state;
    return OK;
}

int cuCheckpointProcessGetRestoreThreadId(int pid, int *thread) {
    struct process_state now;
    int code = begin("restore-thread", pid);
    if (code) return code;
    if (!find(pid, &now)) return INVALID;
    *thread = pid;
    return OK;
}

/* Says whether a process may take this step: it is in the state before it, and not broken for good. */
static int may(const char *verb, int pid, int from, struct process_state *now) {
    int code = begin(verb, pid);
    if (code) return code;
    if (!find(pid, now)) return OS_ERROR;
    if (now->broken) return strcmp(verb, "restore") == 0 ? OS_ERROR : ILLEGAL;
    return now->state == from ? OK : ILLEGAL;
}

static int done(const char *verb, int pid, int to, struct process_state *now) {
    now->state = to;
    keep(pid, now);
    hang(verb, "after");
    return OK;
}

static int broken(int pid, struct process_state *now, int code) {
    now->broken = 1; /* for ever after: restore gives 304, unlock 401 */
    keep(pid, now);
    return code;
}

int cuCheckpointProcessLock(int pid, struct lock_args *args) {
    struct process_state now;
    char text[40];
    snprintf(text, sizeof text, "%u", args->timeout_ms);
    put(path("locked-for"), text);
    int code = may("lock", pid, RUNNING, &now);
    return code ? code : done("lock", pid, LOCKED, &now);
}

int cuCheckpointProcessCheckpoint(int pid, void *args) {
    (void)args;
    struct process_state now;
    int code = may("checkpoint", pid, LOCKED, &now);
    if (code) return code;
    for (int gpu = 0; gpu < gpus(); gpu++) set_free(gpu, gpu_free(gpu) + now.bytes[gpu]);
    return done("checkpoint", pid, CHECKPOINTED, &now);
}

/* Where each GPU's memory goes. A map "must contain every checkpointed GPU"; two GPUs never come to one. */
static int follow_map(const struct restore_args *args, const struct process_state *now, int *to) {
    int named[GPUS] = {0}, taken[GPUS] = {0};
    for (int gpu = 0; gpu < GPUS; gpu++) to[gpu] = gpu;
    for (unsigned int at = 0; at < args->count; at++) {
        int old = args->pairs[at].old[15] - 1, new = args->pairs[at].new[15] - 1;
        if (old < 0 || old >= GPUS || new < 0 || new >= gpus() || named[old]++ || taken[new]++) return INVALID;
        to[old] = new;
    }
    for (int gpu = 0; gpu < GPUS; gpu++)
        if (args->count && now->bytes[gpu] && !named[gpu]) return INVALID;
    return OK;
}

int cuCheckpointProcessRestore(int pid, struct restore_args *args) {
    int to[GPUS];
    struct process_state now, after;
    FILE *file = fopen(path("moved"), "w");
    for (unsigned int at = 0; at < args->count; at++) {
        for (int byte = 0; byte < 16; byte++) fprintf(file, "%02x", args->pairs[at].old[byte]);
        fputc('>', file);
        for (int byte = 0; byte < 16; byte++) fprintf(file, "%02x", args->pairs[at].new[byte]);
        fputc('\n', file);
    }
    fclose(file);
    int code = may("restore", pid, CHECKPOINTED, &now);
    if (code) return code;
    if (!there(path("persistence")) && !started) return broken(pid, &now, OS_ERROR);
    code = follow_map(args, &now, to);
    if (code) return code;
    after = now;
    for (int gpu = 0; gpu < GPUS; gpu++) after.bytes[to[gpu]] = now.bytes[gpu];
    for (int gpu = 0; gpu < GPUS; gpu++)
        if (after.bytes[gpu] > gpu_free(gpu)) return broken(pid, &now, NO_MEMORY);
    for (int gpu = 0; gpu < gpus(); gpu++) set_free(gpu, gpu_free(gpu) - after.bytes[gpu]);
    return done("restore", pid, LOCKED, &after);
}

int cuCheckpointProcessUnlock(int pid, void *args) {
    (void)args;
    struct process_state now;
    int code = may("unlock", pid, LOCKED, &now);
    return code ? code : done("unlock", pid, RUNNING, &now);
}

/* libnvidia-ml: GPUs of 16 GiB. */
#define TOTAL (16ULL << 30)
struct memory { unsigned long long total, free, used; };
struct process { unsigned int pid; unsigned long long used; unsigned int gpu, compute; };

static int number(void *device) { return (int)((unsigned long)device - 1); }

int nvmlInit_v2(void) { return ordered("nvml"); }
int nvmlDeviceGetCount_v2(unsigned int *count) { *count = gpus(); return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **device) { *device = (void *)(1UL + index); return OK; }
int nvmlSystemGetDriverVersion(char *text, unsigned int size) { snprintf(text, size, "580.105.08"); return OK; }
int nvmlDeviceGetName(void *device, char *text, unsigned int size) { (void)device; snprintf(text, size, "Stand-in"); return OK; }
int nvmlDeviceGetPersistenceMode(void *device, unsigned int *mode) {
    (void)device;
    *mode = there(path("persistence"));
    return OK;
}
int nvmlDeviceGetUUID(void *device, char *text, unsigned int size) {
    snprintf(text, size, "GPU-00000000-0000-0000-0000-%012d", number(device) + 1);
    return OK;
}
int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory) {
    unsigned long long unused = gpu_free(number(device));
    *memory = (struct memory){TOTAL, unused, TOTAL - unused};
    return ordered("memory");
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned int *count, struct process *processes) {
    unsigned int found = 0;
    FILE *file = fopen(path(number(device) ? "on-gpu2" : "on-gpu"), "r");
    while (file && fscanf(file, "%u %llu", &processes[found].pid, &processes[found].used) == 2) found++;
    if (file) fclose(file);
    *count = found;
    return ordered("processes");
}
