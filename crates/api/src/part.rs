//! Types that hold a part of an API object, for those who read it often and ask for little.

/// Makes a type the same resource as a typed object of which it is a part: `$get` is where its metadata are.
#[macro_export]
macro_rules! resource_like {
    ($part:ty, $typed:ty, $object:ident => $get:expr) => {
        impl ::k8s_openapi::Resource for $part {
            const API_VERSION: &'static str = <$typed as ::k8s_openapi::Resource>::API_VERSION;
            const GROUP: &'static str = <$typed as ::k8s_openapi::Resource>::GROUP;
            const KIND: &'static str = <$typed as ::k8s_openapi::Resource>::KIND;
            const VERSION: &'static str = <$typed as ::k8s_openapi::Resource>::VERSION;
            const URL_PATH_SEGMENT: &'static str = <$typed as ::k8s_openapi::Resource>::URL_PATH_SEGMENT;
            type Scope = <$typed as ::k8s_openapi::Resource>::Scope;
        }

        impl ::k8s_openapi::Metadata for $part {
            type Ty = <$typed as ::k8s_openapi::Metadata>::Ty;

            fn metadata(&self) -> &Self::Ty {
                let $object = self;
                &$get
            }

            fn metadata_mut(&mut self) -> &mut Self::Ty {
                let $object = self;
                &mut $get
            }
        }
    };
}
