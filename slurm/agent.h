/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * agent.h - what the three plugins ask of libthemis_slurmctld.so.
 *
 * The plugins are loaded by every Slurm command; the agent only by slurmctld.
 * themis_agent() finds it in the folder the calling plugin lies in, so nothing
 * is linked and no path is compiled in. It stays loaded for the life of the
 * process. All functions may be called from any thread that holds the Slurm
 * locks their plugin hook is called with; none of them blocks.
 */
#ifndef THEMIS_AGENT_H
#define THEMIS_AGENT_H

#include <dlfcn.h>
#include <limits.h>
#include <string.h>

#include "compat.h"

/* Bump both with any change of struct themis_agent. */
#define THEMIS_AGENT_SYMBOL "themis_agent_v2"
#define THEMIS_AGENT_VERSION 2

typedef uint32_t (*themis_priority_fn)(uint32_t last, job_record_t *job);

struct themis_agent {
	uint32_t version;

	/* Starts observing and deciding. `priorities`: our priority plugin is
	 * in use, so the agent may write priorities. Repeated calls are fine.
	 * Holds no Slurm lock. */
	void (*start)(bool priorities);
	/* Ends it and waits for its thread. The caller holds no Slurm lock. */
	void (*stop)(void);
	/* slurmctld saves its state; if it is to end, so does the agent. */
	void (*saving)(void);

	/* May the job start now, on (some of) these nodes? Takes nodes out of
	 * the bitmap. False: answer THEMIS_BUSY. Job and node write locks.
	 * While `marks` are set GPUs that are not for the job look taken. */
	bool (*admit)(job_record_t *job, bitstr_t *nodes, List *marks);
	void (*unmark)(List marks);
	/* The same for SELECT_MODE_WILL_RUN: may it start some time? */
	bool (*plan)(job_record_t *job, bitstr_t *nodes);

	/* The priority of a job, given multifactor's. Job write lock. */
	uint32_t (*priority)(themis_priority_fn inner, uint32_t last,
			     job_record_t *job);
	/* Completes sprio's list so that its sums are the priorities in force.
	 * The caller holds no Slurm lock. */
	void (*factors)(List objects);

	/* Checks the hint in a job's comment: 0, or -1 with a message. */
	int (*hint)(const char *comment, char *err, uint32_t err_len);

	/* Accounts for a call of job_test that began at `start_ns`. */
	void (*tested)(uint64_t start_ns);
	uint64_t (*clock_ns)(void);
};

/* Returns the agent, or NULL outside of slurmctld or if it cannot be loaded.
 * Plugins call it once, from init(). Only select/themis, which is always there
 * and first, makes a failure an error in the log. */
static inline const struct themis_agent *themis_agent(const char *plugin_type)
{
	const struct themis_agent *agent = NULL;
	const char *slash, *why = "cannot find the folder of the plugin";
	char path[PATH_MAX];
	void *lib = NULL;
	Dl_info self;

	if (!running_in_slurmctld())
		return NULL;
	if (!dladdr(plugin_type, &self) ||
	    !(slash = strrchr(self.dli_fname, '/')))
		goto fail;
	snprintf(path, sizeof(path), "%.*s/libthemis_slurmctld.so",
		 (int) (slash - self.dli_fname), self.dli_fname);
	lib = dlopen(path, RTLD_LAZY | RTLD_NODELETE);
	if (lib)
		agent = dlsym(lib, THEMIS_AGENT_SYMBOL);
	if (agent && (agent->version == THEMIS_AGENT_VERSION))
		return agent;
	why = agent ? "libthemis_slurmctld.so is of another version" :
		      dlerror();
fail:
	if (!strcmp(plugin_type, "select/themis"))
		error("themis: GPU jobs are scheduled as without Themis: %s",
		      why);
	else
		debug("themis: %s: %s", plugin_type, why);
	return NULL;
}

#endif
