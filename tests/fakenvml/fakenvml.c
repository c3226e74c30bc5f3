/* SPDX-License-Identifier: Apache-2.0
 *
 * fakenvml.c - a libnvidia-ml.so.1 without a GPU, for tests of what loads it.
 *
 * The machine that it plays is read by nvmlInit from the file that FAKE_NVML
 * names, in the language of core/gpu/inventory_test.go. It exports the functions
 * that core/gpu calls, in the newest version that go-nvml looks up and without a
 * version, as the driver's library does. What the file does not say is
 * NVML_ERROR_NOT_SUPPORTED. Without FAKE_NVML there is no driver.
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NVML_NO_UNVERSIONED_FUNC_DEFS 1
#include <nvml.h>

#define MOST 32 /* GPUs; a set of them fits 32 bits */
#define LINKS 18
#define INSTANCES 7
#define HANG -1
#define STOP -2 /* the whole process, as if it hung in the kernel */
#define NO_LINK -1
#define TO_SWITCH -2
#define ELSEWHERE -3
#define EXPORT __attribute__((visibility("default")))

/* A number, if the file has it. */
struct number {
	int known;
	long long v;
};

struct nvmlDevice_st {
	char name[96], uuid[96];
	struct number minor, memory, node, ecc, uncorrected, retiring, throttle, processes, util;
	unsigned int domain, bus, device;
	struct number remapped[4];
	unsigned long cpus[16];
	unsigned int samples[16], nsamples;
	int has_cpus, has_links;
	int links[LINKS];
	struct number levels[MOST];
	struct number mig, gi, ci; /* gi and ci: of a MIG device */
	int handle, every;
	struct {
		char call[64];
		int result;
	} calls[8];
	int ncalls;
};

static struct nvmlDevice_st gpus[MOST];
static struct nvmlDevice_st migs[MOST][INSTANCES]; /* without gi: a hole */
static int ngpus, init_result;
static char driver[32];

static const struct {
	const char *word;
	int result;
} results[] = {
	{ "lost", NVML_ERROR_GPU_IS_LOST }, { "unknown", NVML_ERROR_UNKNOWN },
	{ "timeout", NVML_ERROR_TIMEOUT }, { "reset", NVML_ERROR_RESET_REQUIRED },
	{ "mismatch", NVML_ERROR_LIB_RM_VERSION_MISMATCH }, { "no-driver", NVML_ERROR_DRIVER_NOT_LOADED },
	{ "no-library", NVML_ERROR_LIBRARY_NOT_FOUND }, { "hang", HANG }, { "stop", STOP },
};

static int result_of(const char *word)
{
	for (size_t i = 0; i < sizeof results / sizeof *results; i++)
		if (!strcmp(results[i].word, word))
			return results[i].result;
	return NVML_ERROR_UNKNOWN;
}

/* Sets the bits that "0-3,8" names; 0 if text is no such list. */
static int parse_set(const char *text, unsigned long *set, int words)
{
	while (*text) {
		char *end;
		long from, to;

		if (!isdigit((unsigned char)*text))
			return 0;
		from = to = strtol(text, &end, 10);
		if (*end == '-')
			to = strtol(end + 1, &end, 10);
		for (; from <= to && from < words * 64L; from++)
			set[from / 64] |= 1UL << (from % 64);
		text = *end == ',' ? end + 1 : end;
		if (*end && *end != ',')
			return 0;
	}
	return 1;
}

static int has(const unsigned long *set, int i)
{
	return set[i / 64] >> (i % 64) & 1;
}

static struct number number_of(const char *text)
{
	return (struct number){ 1, !strcmp(text, "on") ? 1 : atoll(text) };
}

static void set_links(struct nvmlDevice_st *g, const char *links, const char *peer)
{
	unsigned long set[1] = { 0 };
	int to = !strcmp(peer, "switch") ? TO_SWITCH : isdigit((unsigned char)*peer) ? atoi(peer) : ELSEWHERE;

	parse_set(links, set, 1);
	for (int n = 0; n < LINKS; n++)
		if (has(set, n))
			g->links[n] = to;
	g->has_links = 1;
}

static void set_levels(int i, const char *peers, const char *level)
{
	unsigned long set[1] = { 0 };

	parse_set(peers, set, 1);
	for (int j = 0; j < ngpus; j++)
		if (has(set, j))
			gpus[i].levels[j] = gpus[j].levels[i] = number_of(level);
}

static int set_instance(int i, char word[5][64])
{
	int index = atoi(word[0]);
	struct nvmlDevice_st *m = &migs[i][index % INSTANCES];

	m->gi = number_of(word[1]);
	m->ci = number_of(word[2]);
	m->memory = number_of(word[3]);
	snprintf(m->name, sizeof m->name, "NVIDIA MIG %s", word[4]);
	snprintf(m->uuid, sizeof m->uuid, "MIG-%d-%d", i, index);
	return index >= 0 && index < INSTANCES;
}

/* One line of one GPU: KEY and the rest of the line, which has WORDS words. */
static int set_key(int i, const char *key, const char *rest, char word[5][64], int words)
{
	struct nvmlDevice_st *g = &gpus[i];
	const struct {
		const char *key;
		struct number *to;
	} numbers[] = {
		{ "minor", &g->minor }, { "memory", &g->memory }, { "node", &g->node }, { "ecc", &g->ecc },
		{ "uncorrected", &g->uncorrected }, { "retiring", &g->retiring }, { "throttle", &g->throttle },
		{ "processes", &g->processes }, { "util", &g->util }, { "mig", &g->mig },
	};

	for (size_t n = 0; n < sizeof numbers / sizeof *numbers; n++)
		if (!strcmp(key, numbers[n].key)) {
			*numbers[n].to = number_of(word[0]);
			return 1;
		}
	if (!strcmp(key, "name"))
		snprintf(g->name, sizeof g->name, "%s", rest);
	else if (!strcmp(key, "uuid"))
		snprintf(g->uuid, sizeof g->uuid, "%s", rest);
	else if (!strcmp(key, "bus"))
		return sscanf(rest, "%x:%x:%x", &g->domain, &g->bus, &g->device) == 3;
	else if (!strcmp(key, "cpus"))
		g->has_cpus = parse_set(word[0], g->cpus, 16);
	else if (!strcmp(key, "samples")) {
		g->nsamples = 0;
		for (char *at = word[0], *end; g->nsamples < 16; at = end + 1) {
			g->samples[g->nsamples++] = strtoul(at, &end, 10);
			if (*end != ',')
				break;
		}
	} else if (!strcmp(key, "remapped") && words == 4)
		for (int n = 0; n < 4; n++)
			g->remapped[n] = number_of(word[n]);
	else if (!strcmp(key, "instance") && words == 5)
		return set_instance(i, word);
	else if (!strcmp(key, "handle"))
		g->handle = result_of(word[0]);
	else if (!strcmp(key, "every"))
		g->every = result_of(word[0]);
	else if (!strcmp(key, "sysnode"))
		return 1;
	else if (!strcmp(key, "nvlink") && words == 2)
		set_links(g, word[0], word[1]);
	else if (!strcmp(key, "level") && words == 2)
		set_levels(i, word[0], word[1]);
	else if (!strcmp(key, "call") && words == 2 && g->ncalls < 8) {
		memcpy(g->calls[g->ncalls].call, word[0], sizeof word[0]);
		g->calls[g->ncalls++].result = result_of(word[1]);
	} else
		return 0;
	return 1;
}

static void add_gpus(int n)
{
	for (; n > 0 && ngpus < MOST; n--, ngpus++) {
		struct nvmlDevice_st *g = &gpus[ngpus];

		g->minor = (struct number){ 1, ngpus };
		g->bus = 16 + ngpus;
		snprintf(g->uuid, sizeof g->uuid, "GPU-%d", ngpus);
		for (int l = 0; l < LINKS; l++)
			g->links[l] = NO_LINK;
	}
}

static int read_line(const char *line)
{
	char which[64], key[64], word[5][64] = { 0 };
	unsigned long set[1] = { 0 };
	int at = 0, words;

	if (sscanf(line, "%63s %63s %n", which, key, &at) < 2 || *which == '#')
		return 1; /* blank, or a comment */
	words = sscanf(line + at, "%63s %63s %63s %63s %63s", word[0], word[1], word[2], word[3], word[4]);
	if (!strcmp(which, "gpus"))
		add_gpus(atoi(key));
	else if (!strcmp(which, "driver"))
		snprintf(driver, sizeof driver, "%.31s", key);
	else if (!strcmp(which, "init"))
		init_result = result_of(key);
	else if (!strcmp(which, "sockets") || !strcmp(which, "cap"))
		return 1; /* the machine's own files are as they are */
	else if (!parse_set(which, set, 1))
		return 0;
	else
		for (int i = 0; i < ngpus; i++)
			if (has(set, i) && !set_key(i, key, line + at, word, words))
				return 0;
	return 1;
}

static nvmlReturn_t read_machine(void)
{
	const char *path = getenv("FAKE_NVML");
	FILE *f = path ? fopen(path, "re") : NULL;
	char line[256];
	int ok = 1;

	if (!f)
		return NVML_ERROR_DRIVER_NOT_LOADED;
	memset(gpus, 0, sizeof gpus);
	memset(migs, 0, sizeof migs);
	ngpus = init_result = 0;
	strcpy(driver, "550.54.15");
	while (ok && fgets(line, sizeof line, f)) {
		line[strcspn(line, "\n")] = 0;
		ok = read_line(line);
		if (!ok)
			fprintf(stderr, "fakenvml: %s: not understood: %s\n", path, line);
	}
	fclose(f);
	return ok ? init_result : NVML_ERROR_UNKNOWN;
}

/* What a call of g gives before it gives its value: an error, or no answer ever. */
static nvmlReturn_t fails(const struct nvmlDevice_st *g, const char *call)
{
	int result = g->every;

	for (int i = 0; i < g->ncalls; i++)
		if (!strcmp(g->calls[i].call, call))
			result = g->calls[i].result;
	if (result == STOP)
		raise(SIGSTOP);
	while (result == HANG)
		pause();
	return result;
}

static nvmlReturn_t text(const struct nvmlDevice_st *g, const char *call, const char *value, char *out, unsigned int length)
{
	nvmlReturn_t ret = fails(g, call);

	if (ret == NVML_SUCCESS && !*value)
		ret = NVML_ERROR_NOT_SUPPORTED;
	if (ret == NVML_SUCCESS)
		snprintf(out, length, "%s", value);
	return ret;
}

static nvmlReturn_t value(const struct nvmlDevice_st *g, const char *call, struct number n)
{
	nvmlReturn_t ret = fails(g, call);

	return ret == NVML_SUCCESS && !n.known ? NVML_ERROR_NOT_SUPPORTED : ret;
}

static void fill_pci(nvmlPciInfo_t *pci, unsigned int domain, unsigned int bus, unsigned int device)
{
	memset(pci, 0, sizeof *pci);
	pci->domain = domain;
	pci->bus = bus;
	pci->device = device;
	snprintf(pci->busId, sizeof pci->busId, "%08X:%02X:%02X.0", domain, bus, device);
	snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "%04X:%02X:%02X.0", domain & 0xffff, bus & 0xff, device & 0xff);
}

EXPORT nvmlReturn_t nvmlInit_v2(void) { return read_machine(); }
EXPORT nvmlReturn_t nvmlShutdown(void) { return NVML_SUCCESS; }
EXPORT const char *nvmlErrorString(nvmlReturn_t result) { return result == NVML_SUCCESS ? "Success" : "an error of fakenvml"; }

EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
	snprintf(version, length, "%s", driver);
	return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *n)
{
	*n = ngpus;
	return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int i, nvmlDevice_t *d)
{
	if (i >= (unsigned int)ngpus)
		return NVML_ERROR_INVALID_ARGUMENT;
	d->handle = &gpus[i];
	return gpus[i].handle;
}

EXPORT nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t d, char *out, unsigned int length) { return text(d.handle, __func__, d.handle->name, out, length); }
EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t d, char *out, unsigned int length) { return text(d.handle, __func__, d.handle->uuid, out, length); }

EXPORT nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t d, unsigned int *minor)
{
	*minor = d.handle->minor.v;
	return value(d.handle, __func__, d.handle->minor);
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t d, nvmlMemory_t *m)
{
	*m = (nvmlMemory_t){ .total = (unsigned long long)d.handle->memory.v << 20 };
	return value(d.handle, __func__, d.handle->memory);
}

EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t d, nvmlPciInfo_t *pci)
{
	fill_pci(pci, d.handle->domain, d.handle->bus, d.handle->device);
	return fails(d.handle, "nvmlDeviceGetPciInfo");
}

EXPORT nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t d, unsigned int words, unsigned long *set)
{
	memset(set, 0, words * sizeof *set);
	memcpy(set, d.handle->cpus, (words < 16 ? words : 16) * sizeof *set);
	return value(d.handle, __func__, (struct number){ d.handle->has_cpus, 0 });
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t d, unsigned int words, unsigned long *set, nvmlAffinityScope_t scope)
{
	(void)scope;
	memset(set, 0, words * sizeof *set);
	set[0] = d.handle->node.known ? 1UL << d.handle->node.v : 0;
	return value(d.handle, __func__, d.handle->node);
}

EXPORT nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t d, nvmlEnableState_t *now, nvmlEnableState_t *pending)
{
	*now = *pending = d.handle->ecc.v;
	return value(d.handle, __func__, d.handle->ecc);
}

EXPORT nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t d, nvmlMemoryErrorType_t type, nvmlEccCounterType_t counter, unsigned long long *n)
{
	(void)type, (void)counter;
	*n = d.handle->uncorrected.v;
	return value(d.handle, __func__, d.handle->uncorrected);
}

EXPORT nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t d, unsigned int *corrected, unsigned int *uncorrected, unsigned int *pending, unsigned int *failed)
{
	*corrected = d.handle->remapped[0].v;
	*uncorrected = d.handle->remapped[1].v;
	*pending = d.handle->remapped[2].v;
	*failed = d.handle->remapped[3].v;
	return value(d.handle, __func__, d.handle->remapped[0]);
}

EXPORT nvmlReturn_t nvmlDeviceGetRetiredPagesPendingStatus(nvmlDevice_t d, nvmlEnableState_t *pending)
{
	*pending = d.handle->retiring.v;
	return value(d.handle, __func__, d.handle->retiring);
}

EXPORT nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t d, unsigned long long *reasons)
{
	*reasons = d.handle->throttle.v;
	return value(d.handle, __func__, d.handle->throttle);
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t d, unsigned int *n, nvmlProcessInfo_t *infos)
{
	nvmlReturn_t ret = value(d.handle, "nvmlDeviceGetComputeRunningProcesses", d.handle->processes);
	unsigned int room = *n;

	if (ret != NVML_SUCCESS)
		return ret;
	*n = d.handle->processes.v;
	if (room < *n)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	memset(infos, 0, *n * sizeof *infos);
	return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t d, nvmlUtilization_t *u)
{
	*u = (nvmlUtilization_t){ .gpu = d.handle->util.v };
	return value(d.handle, __func__, d.handle->util);
}

EXPORT nvmlReturn_t nvmlDeviceGetSamples(nvmlDevice_t d, nvmlSamplingType_t type, unsigned long long last,
					 nvmlValueType_t *value_type, unsigned int *n, nvmlSample_t *samples)
{
	nvmlReturn_t ret = value(d.handle, __func__, (struct number){ d.handle->nsamples > 0, 0 });

	(void) last;
	if (ret != NVML_SUCCESS)
		return ret;
	if (type != NVML_GPU_UTILIZATION_SAMPLES)
		return NVML_ERROR_NOT_SUPPORTED;
	*value_type = NVML_VALUE_TYPE_UNSIGNED_INT;
	if (!samples) {
		*n = 16; /* there is room for so many: more than there are */
		return NVML_SUCCESS;
	}
	*n = d.handle->nsamples < *n ? d.handle->nsamples : *n;
	for (unsigned int i = 0; i < *n; i++)
		samples[i].sampleValue.uiVal = d.handle->samples[i];
	return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t d, unsigned int *now, unsigned int *pending)
{
	*now = *pending = d.handle->mig.v;
	return value(d.handle, __func__, d.handle->mig);
}

EXPORT nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t d, unsigned int *n)
{
	*n = INSTANCES;
	return value(d.handle, __func__, d.handle->mig);
}

EXPORT nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t d, unsigned int i, nvmlDevice_t *instance)
{
	if (i >= INSTANCES)
		return NVML_ERROR_INVALID_ARGUMENT;
	instance->handle = &migs[d.handle - gpus][i];
	return instance->handle->gi.known ? fails(d.handle, __func__) : NVML_ERROR_NOT_FOUND;
}

EXPORT nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t d, nvmlDeviceAttributes_t *a)
{
	*a = (nvmlDeviceAttributes_t){ .memorySizeMB = d.handle->memory.v };
	return value(d.handle, "nvmlDeviceGetAttributes", d.handle->gi);
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t d, unsigned int *id)
{
	*id = d.handle->gi.v;
	return value(d.handle, __func__, d.handle->gi);
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t d, unsigned int *id)
{
	*id = d.handle->ci.v;
	return value(d.handle, __func__, d.handle->ci);
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t d, unsigned int link, nvmlEnableState_t *active)
{
	nvmlReturn_t ret = value(d.handle, __func__, (struct number){ d.handle->has_links, 0 });

	if (ret == NVML_SUCCESS && link >= LINKS)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (ret == NVML_SUCCESS)
		*active = d.handle->links[link] != NO_LINK;
	return ret;
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t d, unsigned int link, nvmlPciInfo_t *pci)
{
	int peer = d.handle->links[link % LINKS];

	if (peer >= 0 && peer < ngpus)
		fill_pci(pci, gpus[peer].domain, gpus[peer].bus, gpus[peer].device);
	else
		fill_pci(pci, 0, 0xc0, 0);
	return fails(d.handle, "nvmlDeviceGetNvLinkRemotePciInfo");
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t d, unsigned int link, nvmlIntNvLinkDeviceType_t *type)
{
	*type = d.handle->links[link % LINKS] == TO_SWITCH ? NVML_NVLINK_DEVICE_TYPE_SWITCH : NVML_NVLINK_DEVICE_TYPE_GPU;
	return fails(d.handle, __func__);
}

EXPORT nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t d, nvmlDevice_t other, nvmlGpuTopologyLevel_t *level)
{
	struct number n = d.handle->levels[other.handle - gpus];

	*level = n.v;
	return value(d.handle, __func__, n);
}

/* The names without a version, which core/gpu asks for before it calls. */
EXPORT nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t d, nvmlPciInfo_t *pci) { return nvmlDeviceGetPciInfo_v3(d, pci); }
EXPORT nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo(nvmlDevice_t d, unsigned int link, nvmlPciInfo_t *pci) { return nvmlDeviceGetNvLinkRemotePciInfo_v2(d, link, pci); }
EXPORT nvmlReturn_t nvmlDeviceGetAttributes(nvmlDevice_t d, nvmlDeviceAttributes_t *a) { return nvmlDeviceGetAttributes_v2(d, a); }
EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t d, unsigned int *n, nvmlProcessInfo_v1_t *infos)
{
	(void)infos;
	*n = 0;
	return value(d.handle, __func__, d.handle->processes);
}
