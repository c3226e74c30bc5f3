/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * priority/themis - priority/multifactor, with its priorities of GPU jobs
 * replaced by the order of the auction.
 *
 * multifactor is loaded beneath and does all it ever did: fair-share usage,
 * decay, limits, factors. Only priority_p_set() and sprio's list pass through
 * the agent. slurmctld initializes its priority plugin when it has become the
 * primary controller and has read its state, and ends it first when it shuts
 * down or falls back to standby: just the life the agent's thread should have.
 */
#include "agent.h"

/* What Slurm looks up by name; plugin.map lists the same. */
#pragma GCC visibility push(default)

const char plugin_name[] = "Themis priorities over multifactor";
const char plugin_type[] = "priority/themis";
const uint32_t plugin_version = SLURM_VERSION_NUMBER;

/* As in src/common/slurm_priority.c of the release. */
static struct {
	uint32_t (*set)(uint32_t last_prio, job_record_t *job_ptr);
	void (*reconfig)(bool assoc_clear);
	void (*set_assoc_usage)(slurmdb_assoc_rec_t *assoc);
	double (*calc_fs_factor)(long double usage_efctv,
				 long double shares_norm);
	List (*factors)(THEMIS_FACTORS_PARAMS);
	void (*job_end)(job_record_t *job_ptr);
	/* Only where compat.h names them. */
	uint32_t (*recover)(uint32_t prio_boost);
	void (*thread_start)(void);
} inner;

static const char *inner_syms[] = {
	"priority_p_set",
	"priority_p_reconfig",
	"priority_p_set_assoc_usage",
	"priority_p_calc_fs_factor",
	"priority_p_get_priority_factors_list",
	"priority_p_job_end",
	THEMIS_PRIORITY_MORE_SYMS
};

static plugin_context_t *context;
static const struct themis_agent *agent;

extern int init(void)
{
	context = plugin_context_create("priority", "priority/multifactor",
					(void **) &inner, inner_syms,
					sizeof(inner_syms));
	if (!context) {
		error("themis: cannot load priority/multifactor");
		return SLURM_ERROR;
	}
	agent = themis_agent(plugin_type);
	if (agent && THEMIS_PRIORITY_BEGINS_IN_INIT)
		agent->start(true);
	return SLURM_SUCCESS;
}

extern int fini(void)
{
	if (agent)
		agent->stop();
	agent = NULL;
	if (context)
		plugin_context_destroy(context);
	context = NULL;
	return SLURM_SUCCESS;
}

extern uint32_t priority_p_set(uint32_t last_prio, job_record_t *job_ptr)
{
	if (!agent)
		return inner.set(last_prio, job_ptr);
	return agent->priority(inner.set, last_prio, job_ptr);
}

extern void priority_p_reconfig(bool assoc_clear)
{
	inner.reconfig(assoc_clear);
}

extern void priority_p_set_assoc_usage(slurmdb_assoc_rec_t *assoc)
{
	inner.set_assoc_usage(assoc);
}

extern double priority_p_calc_fs_factor(long double usage_efctv,
					long double shares_norm)
{
	return inner.calc_fs_factor(usage_efctv, shares_norm);
}

extern List priority_p_get_priority_factors_list(THEMIS_FACTORS_PARAMS)
{
	List objects = inner.factors(THEMIS_FACTORS_ARGS);

	if (agent && objects)
		agent->factors(objects);
	return objects;
}

extern void priority_p_job_end(job_record_t *job_ptr)
{
	inner.job_end(job_ptr);
}

extern uint32_t priority_p_recover(uint32_t prio_boost)
{
	return inner.recover(prio_boost);
}

extern void priority_p_thread_start(void)
{
	inner.thread_start();
	if (agent && !THEMIS_PRIORITY_BEGINS_IN_INIT)
		agent->start(true);
}
