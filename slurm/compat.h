/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * compat.h - everything in which the supported Slurm releases differ: 22.05
 * (Debian 12) and 24.11 (Debian 13). It also brings in the Slurm headers, in
 * the order they need. A port to another release starts, and should end, here.
 */
#ifndef THEMIS_COMPAT_H
#define THEMIS_COMPAT_H

#include "config.h"

#include "src/common/slurm_xlator.h" /* must come first */

#include "slurm/slurm.h"
#include "slurm/slurm_errno.h"

#if (SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(22, 5, 0)) && \
	(SLURM_VERSION_NUMBER < SLURM_VERSION_NUM(23, 2, 0))
#define THEMIS_SLURM_22_05
#elif (SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(24, 11, 0)) && \
	(SLURM_VERSION_NUMBER < SLURM_VERSION_NUM(25, 5, 0))
#define THEMIS_SLURM_24_11
#else
#error "this release of Slurm is not supported; see compat.h"
#endif

#include "src/common/assoc_mgr.h"
#include "src/common/list.h"
#include "src/common/log.h"
#include "src/common/node_conf.h"
#include "src/common/plugin.h"
#include "src/common/run_in_daemon.h"
#include "src/common/uid.h"
#include "src/common/xmalloc.h"
#include "src/common/xstring.h"
#include "src/slurmctld/job_scheduler.h"
#include "src/slurmctld/licenses.h"
#include "src/slurmctld/locks.h"
#include "src/slurmctld/node_scheduler.h"
#include "src/slurmctld/slurmctld.h"

/* From 25.05 on it would have to be SELECT_PLUGIN_CONS_TRES; until then each
 * select plugin's id must be its own. 131 is nobody's. */
#define THEMIS_PLUGIN_ID 131

/* What cons_tres answers when a job cannot start on the nodes offered. */
#define THEMIS_BUSY EINVAL

/* Names to be found among THEMIS_JOB_TEST_PARAMS: job_ptr, node_bitmap, mode.
 * THEMIS_SELECT_MORE lists functions of the release besides those that all
 * have, as (result, name, parameters, arguments). */

#ifdef THEMIS_SLURM_22_05

#include "src/common/gres.h"
#include "src/common/select.h"
#include "src/common/slurm_priority.h"
#include "src/common/slurm_topology.h"

/* A reason that select_nodes() leaves alone ("state_reason was already
 * setup"): meant for BlueGene, which is gone, and set by nobody any more. With
 * it a job keeps our sentence from one scheduling pass to the next. */
#define THEMIS_REASON WAIT_BLOCK_MAX_ERR

typedef struct job_details job_details_t;

#define themis_reason_name(reason) job_reason_string(reason)
#define themis_exclusive(details) \
	((details)->whole_node == WHOLE_NODE_REQUIRED)

/* The priorities of a job in several partitions, in the order of
 * part_ptr_list, NULL if it is in one; and how many there are. */
#define themis_priority_array(job) ((job)->priority_array)
#define themis_priority_count(job) \
	((job)->part_ptr_list ? list_count((job)->part_ptr_list) : 0)

#define THEMIS_JOB_TEST_PARAMS \
	job_record_t *job_ptr, bitstr_t *node_bitmap, uint32_t min_nodes, \
		uint32_t max_nodes, uint32_t req_nodes, uint16_t mode, \
		List candidates, List *preempt, bitstr_t *exclude
#define THEMIS_JOB_TEST_ARGS \
	job_ptr, node_bitmap, min_nodes, max_nodes, req_nodes, mode, \
		candidates, preempt, exclude
#define THEMIS_SELECT_MORE(X) \
	X(int, job_signal, (job_record_t *job, int signal), (job, signal)) \
	X(char *, select_jobinfo_sprint, \
	  (select_jobinfo_t *info, char *buf, size_t size, int mode), \
	  (info, buf, size, mode)) \
	X(char *, select_jobinfo_xstrdup, \
	  (select_jobinfo_t *info, int mode), \
	  (info, mode)) \
	X(int, update_node_config, (int index), (index)) \
	X(bitstr_t *, resv_test, \
	  (resv_desc_msg_t *desc, uint32_t count, bitstr_t *avail, bitstr_t **cores), \
	  (desc, count, avail, cores))

#define THEMIS_FACTORS_PARAMS priority_factors_request_msg_t *req_msg, uid_t uid
#define THEMIS_FACTORS_ARGS req_msg, uid
#define themis_factors(object) (object)
typedef priority_factors_object_t themis_factors_t;

/* slurmctld calls init() of the priority plugin when it becomes primary. */
#define THEMIS_PRIORITY_BEGINS_IN_INIT true
#define THEMIS_PRIORITY_MORE_SYMS

/* Only an errno reaches the user of scontrol update. */
#define THEMIS_MODIFY_ERR_PARAM
#define themis_modify_say(text) ((void) (text))

#endif

#ifdef THEMIS_SLURM_24_11

#include "src/common/job_features.h"
#include "src/common/job_state_reason.h"
#include "src/common/node_features.h"
#include "src/interfaces/gres.h"
#include "src/interfaces/priority.h"
#include "src/interfaces/select.h"

typedef list_t *List;
typedef list_itr_t *ListIterator;

/* No reason is left alone there: the agent writes the sentence again after
 * each pass. */
#define THEMIS_REASON WAIT_RESOURCES

#define themis_reason_name(reason) job_state_reason_string(reason)
#define themis_exclusive(details) ((details)->whole_node & WHOLE_NODE_REQUIRED)
#define themis_priority_array(job) \
	((job)->part_prio ? (job)->part_prio->priority_array : NULL)
/* There one for each pair of partition and QOS. */
#define themis_priority_count(job) \
	(((job)->part_ptr_list ? list_count((job)->part_ptr_list) : 1) * \
	 ((job)->qos_list ? list_count((job)->qos_list) : 1))

#define THEMIS_JOB_TEST_PARAMS \
	job_record_t *job_ptr, bitstr_t *node_bitmap, uint32_t min_nodes, \
		uint32_t max_nodes, uint32_t req_nodes, uint16_t mode, \
		List candidates, List *preempt, resv_exc_t *exclude, \
		will_run_data_t *will_run
#define THEMIS_JOB_TEST_ARGS \
	job_ptr, node_bitmap, min_nodes, max_nodes, req_nodes, mode, \
		candidates, preempt, exclude, will_run
#define THEMIS_SELECT_MORE(X)

#define THEMIS_FACTORS_PARAMS uid_t uid
#define THEMIS_FACTORS_ARGS uid
#define themis_factors(object) ((object)->prio_factors)
typedef priority_factors_t themis_factors_t;

#define THEMIS_PRIORITY_BEGINS_IN_INIT false
#define THEMIS_PRIORITY_MORE_SYMS \
	"priority_p_recover", "priority_p_thread_start",

#define THEMIS_MODIFY_ERR_PARAM , char **err_msg
#define themis_modify_say(text) (*err_msg = xstrdup(text))

#endif

/* The name of a node's leaf switch, or NULL. Node lock: read. Callers keep
 * the result only while they hold it. */
static inline const char *themis_leaf_switch(int node)
{
#ifdef THEMIS_SLURM_22_05
	for (int i = 0; i < switch_record_cnt; i++) {
		switch_record_t *sw = &switch_record_table[i];

		if (!sw->level && sw->node_bitmap &&
		    bit_test(sw->node_bitmap, node))
			return sw->name;
	}
#else
	(void) node; /* the table is private to topology/tree there */
#endif
	return NULL;
}

#endif
