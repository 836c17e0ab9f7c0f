//! What pods are made from, of the Jobs that made some last: a Job is read once, not once a pod.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use windlass_job::Uid;
use windlass_job::pod_body::{Mold, NoLabels};

use crate::wire::RawJob;

/// Of so many Jobs: as many as make pods at the same moment. One takes some kilobytes.
const KEPT_MAX: usize = 16;

/// The molds of some Jobs, the newest last.
#[derive(Debug, Default)]
pub(super) struct Molds(Mutex<VecDeque<(Uid, Arc<Mold>)>>);

/// Why there is none.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// Users see it.
    #[error("{0}")]
    NoLabels(NoLabels),
    /// It was read before, so that this does not happen.
    #[error(transparent)]
    Unreadable(#[from] serde_json::Error),
}

impl Molds {
    /// That of a Job as it was written.
    pub(super) fn of(&self, uid: &Uid, job: &RawJob) -> Result<Arc<Mold>, Error> {
        let is_it = |(of, mold): &&(Uid, Arc<Mold>)| {
            of == uid && mold.generation.is_some() && mold.generation == job.metadata.generation
        };
        if let Some((_, mold)) = self.0.lock().iter().find(is_it) {
            return Ok(Arc::clone(mold));
        }
        let mold = Arc::new(Mold::of(&job.read()?.0).map_err(Error::NoLabels)?);
        let mut kept = self.0.lock();
        kept.retain(|(of, _)| of != uid);
        if kept.len() == KEPT_MAX {
            kept.pop_front();
        }
        kept.push_back((uid.clone(), Arc::clone(&mold)));
        Ok(mold)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn job(generation: i64, label: &str) -> RawJob {
        let template = json!({"metadata": {"labels": {"l": label}}, "spec": {"containers": []}});
        let job = json!({
            "metadata": {"name": "j", "generation": generation},
            "spec": {"selector": {}, "template": template},
        });
        serde_json::from_value(job).expect("a Job")
    }

    #[test]
    fn a_job_is_read_again_only_when_it_has_changed() {
        let (molds, uid) = (Molds::default(), Uid::new("j"));
        let first = molds.of(&uid, &job(1, "a")).expect("a mold");
        assert!(Arc::ptr_eq(&first, &molds.of(&uid, &job(1, "not looked at")).expect("a mold")));
        let second = molds.of(&uid, &job(2, "b")).expect("a mold");
        assert!(!Arc::ptr_eq(&first, &second));
        assert_eq!(molds.0.lock().len(), 1, "the old one is forgotten");
    }

    #[test]
    fn those_of_the_last_jobs_are_kept() {
        let molds = Molds::default();
        for number in 0..100 {
            molds.of(&Uid::new(&number.to_string()), &job(1, "a")).expect("a mold");
        }
        let kept: Vec<Uid> = molds.0.lock().iter().map(|(uid, _)| uid.clone()).collect();
        assert_eq!(kept, (84..100).map(|number| Uid::new(&number.to_string())).collect::<Vec<_>>());
    }

    #[test]
    fn a_template_without_labels_is_told_in_words_of_upstream() {
        let mut bare = json!({"metadata": {"name": "j"}, "spec": {"selector": {}, "template": {}}});
        bare["spec"]["template"]["spec"] = json!({"containers": []});
        let bare = serde_json::from_value(bare).expect("a Job");
        let error = Molds::default().of(&Uid::new("j"), &bare).expect_err("no labels");
        assert_eq!(error.to_string(), "unable to create pods, no labels");
    }
}
