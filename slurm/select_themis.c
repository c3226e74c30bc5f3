/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * select/themis - select/cons_tres, asking the agent before a GPU job starts.
 *
 * cons_tres is loaded beneath and keeps choosing cores, memory, GPUs and
 * nodes. The one call that is more than passed on is select_p_job_test(): a
 * job that asks for GPUs needs a grant, which narrows the nodes it is offered
 * (see hooks.c).
 *
 * Every Slurm command and daemon loads this plugin. The agent, and with it the
 * Go library, is loaded by slurmctld alone.
 */
#include "agent.h"

/* What Slurm looks up by name; plugin.map lists the same. */
#pragma GCC visibility push(default)

const char plugin_name[] = "Themis auctions over cons_tres";
const char plugin_type[] = "select/themis";
const uint32_t plugin_id = THEMIS_PLUGIN_ID;
const uint32_t plugin_version = SLURM_VERSION_NUMBER;

/* All functions that are only passed on: result, name, parameters, arguments.
 * compat.h adds those that not every release has. */
#define PASSED_ON(X) \
	X(int, state_restore, (char *dir_name), (dir_name)) \
	X(int, job_init, (List jobs), (jobs)) \
	X(int, node_init, (void), ()) \
	X(int, job_begin, (job_record_t *job), (job)) \
	X(int, job_ready, (job_record_t *job), (job)) \
	X(int, job_expand, (job_record_t *from, job_record_t *to), (from, to)) \
	X(int, job_resized, \
	  (job_record_t *job, node_record_t *node), \
	  (job, node)) \
	X(int, job_fini, (job_record_t *job), (job)) \
	X(int, job_suspend, \
	  (job_record_t *job, bool indf_susp), \
	  (job, indf_susp)) \
	X(int, job_resume, \
	  (job_record_t *job, bool indf_susp), \
	  (job, indf_susp)) \
	X(bitstr_t *, step_pick_nodes, \
	  (job_record_t *job, select_jobinfo_t *step, uint32_t count, bitstr_t **avail), \
	  (job, step, count, avail)) \
	X(int, step_start, (step_record_t *step), (step)) \
	X(int, step_finish, \
	  (step_record_t *step, bool killing), \
	  (step, killing)) \
	X(int, select_nodeinfo_pack, \
	  (select_nodeinfo_t *info, buf_t *buf, uint16_t version), \
	  (info, buf, version)) \
	X(int, select_nodeinfo_unpack, \
	  (select_nodeinfo_t **info, buf_t *buf, uint16_t version), \
	  (info, buf, version)) \
	X(select_nodeinfo_t *, select_nodeinfo_alloc, (void), ()) \
	X(int, select_nodeinfo_free, (select_nodeinfo_t *info), (info)) \
	X(int, select_nodeinfo_set_all, (void), ()) \
	X(int, select_nodeinfo_set, (job_record_t *job), (job)) \
	X(int, select_nodeinfo_get, \
	  (select_nodeinfo_t *info, enum select_nodedata_type what, enum node_states state, void *data), \
	  (info, what, state, data)) \
	X(select_jobinfo_t *, select_jobinfo_alloc, (void), ()) \
	X(int, select_jobinfo_free, (select_jobinfo_t *info), (info)) \
	X(int, select_jobinfo_set, \
	  (select_jobinfo_t *info, enum select_jobdata_type type, void *data), \
	  (info, type, data)) \
	X(int, select_jobinfo_get, \
	  (select_jobinfo_t *info, enum select_jobdata_type type, void *data), \
	  (info, type, data)) \
	X(select_jobinfo_t *, select_jobinfo_copy, \
	  (select_jobinfo_t *info), \
	  (info)) \
	X(int, select_jobinfo_pack, \
	  (select_jobinfo_t *info, buf_t *buf, uint16_t version), \
	  (info, buf, version)) \
	X(int, select_jobinfo_unpack, \
	  (select_jobinfo_t **info, buf_t *buf, uint16_t version), \
	  (info, buf, version)) \
	X(int, get_info_from_plugin, \
	  (enum select_plugindata_info what, job_record_t *job, void *data), \
	  (what, job, data)) \
	X(int, reconfigure, (void), ()) \
	THEMIS_SELECT_MORE(X)

#define MEMBER(result, name, params, args) result(*name) params;
static struct {
	int (*job_test)(THEMIS_JOB_TEST_PARAMS);
	int (*state_save)(char *dir_name);
	PASSED_ON(MEMBER)
} inner;

/* In the order of `inner`. */
#define SYMBOL(result, name, params, args) "select_p_" #name,
static const char *inner_syms[] = {
	"select_p_job_test",
	"select_p_state_save",
	PASSED_ON(SYMBOL)
};

static plugin_context_t *context;
static const struct themis_agent *agent;

extern int init(void)
{
	context = plugin_context_create("select", "select/cons_tres",
					(void **) &inner, inner_syms,
					sizeof(inner_syms));
	if (!context) {
		error("themis: cannot load select/cons_tres");
		return SLURM_ERROR;
	}
	agent = themis_agent(plugin_type);
	return SLURM_SUCCESS;
}

extern int fini(void)
{
	agent = NULL;
	if (context)
		plugin_context_destroy(context);
	context = NULL;
	return SLURM_SUCCESS;
}

extern int select_p_job_test(THEMIS_JOB_TEST_PARAMS)
{
	bool admitted = true;
	List marks = NULL;

	if (agent && (mode == SELECT_MODE_RUN_NOW)) {
		uint64_t start = agent->clock_ns();

		admitted = agent->admit(job_ptr, node_bitmap, &marks);
		agent->tested(start);
	} else if (agent && (mode == SELECT_MODE_WILL_RUN)) {
		admitted = agent->plan(job_ptr, node_bitmap);
	}
	if (!admitted)
		return THEMIS_BUSY;
	if (marks) { /* better on other GPUs of its nodes than not at all */
		bitstr_t *offered = bit_copy(node_bitmap);
		int rc = inner.job_test(THEMIS_JOB_TEST_ARGS);

		agent->unmark(marks);
		if (rc != SLURM_SUCCESS)
			bit_copybits(node_bitmap, offered);
		FREE_NULL_BITMAP(offered);
		if (rc == SLURM_SUCCESS)
			return rc;
	}
	return inner.job_test(THEMIS_JOB_TEST_ARGS);
}

/* slurmctld does not end its select plugin; this is its last call to it. */
extern int select_p_state_save(char *dir_name)
{
	if (agent)
		agent->saving();
	return inner.state_save(dir_name);
}

#define PASS(result, name, params, args) \
	extern result select_p_##name params \
	{ \
		return inner.name args; \
	}
PASSED_ON(PASS)
