//! The objects that were written last, decoded. Who changes one of them again need not read it: a pod is made, bound,
//! reported and released within moments.

use std::collections::VecDeque;

use bytes::Bytes;
use parking_lot::Mutex;
use windlass_store::Record;

use crate::object::{Attributes, Draft, Object};
use crate::resources::Resource;
use crate::status::Result;

/// So many are kept.
const OBJECTS_MAX: usize = 256;
/// Larger ones are not: what is decoded takes several times the memory of its JSON.
const OBJECT_BYTES_MAX: usize = 8 << 10;

/// With the bytes that they are stored as; the oldest first.
#[derive(Default)]
pub(crate) struct Recent(Mutex<VecDeque<(Bytes, Object)>>);

impl Recent {
    /// Keeps an object that has just been written from `draft`, if it is of those that are written again.
    pub(crate) fn keep(
        &self,
        resource: &Resource,
        record: &Record<Attributes>,
        draft: &Draft,
        object: Object,
    ) {
        if !resource.has_status || record.bytes.len() > OBJECT_BYTES_MAX || is_at_rest(&object) {
            return;
        }
        let object = object.stored_as(draft, &record.bytes, record.revision);
        debug_assert!(
            Object::from_stored(&record.bytes).is_ok_and(|read| read == object),
            "an object that is kept is the one that is stored"
        );
        let mut kept = self.0.lock();
        let oldest = if kept.len() < OBJECTS_MAX { None } else { kept.pop_front() };
        kept.push_back((record.bytes.clone(), object));
        drop(kept);
        drop(oldest);
    }

    /// The object of a record. It is not kept any longer: the state that follows may be.
    pub(crate) fn read(&self, record: &Record<Attributes>) -> Result<Object> {
        self.take(&record.bytes).map_or_else(|| Object::from_stored(&record.bytes), Ok)
    }

    fn take(&self, bytes: &Bytes) -> Option<Object> {
        let mut kept = self.0.lock();
        // The very same bytes: as long as they are kept, no others can be in their place.
        let place = kept.iter().rposition(|(kept, _)| kept.as_ptr_range() == bytes.as_ptr_range())?;
        kept.remove(place).map(|(_, object)| object)
    }
}

/// Nobody has anything to write to it any more: a pod that has ended and that nobody holds.
fn is_at_rest(object: &Object) -> bool {
    matches!(object.text_at("status", "phase"), "Succeeded" | "Failed") && object.finalizers().is_empty()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};
    use windlass_store::{Limits, Store};

    use super::*;
    use crate::resources;

    fn pod(name: &str, more: &str) -> Object {
        pod_in_phase("Pending", name, more)
    }

    fn pod_in_phase(phase: &str, name: &str, more: &str) -> Object {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "managedFields": [{"manager": "m"}]},
            "spec": {"nodeName": "n", "x": more}, "status": {"phase": phase},
        });
        let Value::Object(map) = pod else { unreachable!("made above") };
        Object::from(map)
    }

    /// Writes a pod as requests do, and keeps it.
    fn write(store: &Store<Attributes>, recent: &Recent, object: Object) -> Arc<Record<Attributes>> {
        let resource = resources::all().iter().find(|resource| resource.plural == "pods").expect("pods");
        let draft = object.draft(resource);
        let key = windlass_store::Key::new("pods", "d", object.name());
        let record =
            store.create(key, Attributes::default(), |revision| draft.stamp(revision)).expect("stored");
        recent.keep(resource, &record, &draft, object);
        record
    }

    #[test]
    fn what_was_written_last_is_there_once_as_it_is_stored_and_what_is_old_large_or_at_rest_is_read() {
        let (store, recent) = (Store::new(Limits::default()), Recent::default());
        let record = write(&store, &recent, pod("p", ""));
        let (kept, read) = (recent.take(&record.bytes).expect("kept"), Object::from_stored(&record.bytes));
        let read = read.expect("an object");
        assert_eq!(kept, read);
        assert_eq!(kept.meta_text("resourceVersion"), record.revision.to_string());
        assert_eq!(recent.take(&record.bytes), None);
        assert_eq!(recent.read(&record).expect("read"), read);

        let large = write(&store, &recent, pod("large", &"x".repeat(OBJECT_BYTES_MAX)));
        assert_eq!(recent.take(&large.bytes), None);

        let mut ended = pod_in_phase("Failed", "ended", "");
        let at_rest = write(&store, &recent, ended.clone());
        assert_eq!(recent.take(&at_rest.bytes), None);
        ended.set_meta("name", "held");
        ended.set_meta("finalizers", json!(["x"]));
        let held = write(&store, &recent, ended);
        assert!(recent.take(&held.bytes).is_some());

        let first = write(&store, &recent, pod("first", ""));
        for n in 0..OBJECTS_MAX {
            write(&store, &recent, pod(&format!("p-{n}"), ""));
        }
        assert_eq!(recent.take(&first.bytes), None);
        assert_eq!(recent.0.lock().len(), OBJECTS_MAX);
    }

    #[test]
    fn an_object_that_was_kept_is_written_from_the_bytes_it_has() {
        let (store, recent) = (Store::new(Limits::default()), Recent::default());
        let record = write(&store, &recent, pod("p", ""));
        let mut kept = recent.take(&record.bytes).expect("kept");
        kept.section_mut("status").insert("phase".to_owned(), json!("Failed"));
        let resource = resources::all().iter().find(|resource| resource.plural == "pods").expect("pods");
        let mut read = Object::from_stored(&record.bytes).expect("an object");
        read.section_mut("status").insert("phase".to_owned(), json!("Failed"));
        let stamped = |object: &Object| -> Bytes { object.draft(resource).stamp(9) };
        assert_eq!(stamped(&kept), stamped(&read));
    }
}
