// Made by tools/make_unicode_tables.py from tests/golden/text/tokenizers/unicode.json;
// class members are those of tokenizers 0.23.3 (Unicode 16). Do not edit.
#include "lode/text/unicode_tables.h"

namespace lode::text {

// clang-format off
const std::uint16_t kClassSets[] = {
    0x0000,  // a
    0x0040,  // b
    0x0080,  // c
    0x0100,  // d
    0x0280,  // e
    0x0300,  // f
    0x0400,  // g
    0x0801,  // h
    0x0802,  // i
    0x0804,  // j
    0x0808,  // k
    0x0810,  // l
    0x0820,  // m
    0x0840,  // n
    0x0880,  // o
    0x0900,  // p
    0x0A08,  // q
    0x0A10,  // r
    0x0A20,  // s
    0x0A40,  // t
    0x1820,  // u
};
const std::size_t kNumClassSets = 21;

const std::string_view kClassRuns =
    "a9g5a18gc3dc6dc4n10c2d3c2h26c3dodi26cdcda6ga26gcd5cd2lcdad4n2dic2dnlcn3ch23dh7i24di8hihihi"
    "hihihihihihihihihihihihihihihihihihihihihihihihihi2hihihihihihihihi2hihihihihihihihihihihi"
    "hihihihihihihihihihihihih2ihihi3h2ihih2ih3i2h4ih2ih3i3h2ih2ihihih2ihi2hih2ih3ihih2i2lhi3l4"
    "hjihjihjihihihihihihihihi2hihihihihihihihihi2hjihih3ihihihihihihihihihihihihihihihihihihih"
    "ihihihihihihihihihihi7h2ih2i2hih4ihihihihi69li27k18d4k12d14k5d7kdkd17u64m2um2u10mu32hihikd"
    "hia2ki3cha4d2hch3ahah2ih17ah9i35hi2h3i3hihihihihihihihihihihihi5hidhih2i2h51i48hihihihihih"
    "ihihihihihihihihihihihidu5m2hihihihihihihihihihihihihihihihihihihihihihihihihihihih2ihihih"
    "ihihihi2hihihihihihihihihihihihihihihihihihihihihihihihihihihihihihihihihihihihihihihihihi"
    "hihihihihihihiah38a2kc6i41c2a2d3au45cucu2cu2cua8l27a4l4c2a17d3c2dc2d2u11cac3l32kl10u21n10c"
    "4l2ul99clu7adu6k2u2du4l2n10l3d2lc14a2lul30u27a2l89m11la14n10l33u9k2dc3ka2md2l22u4ku9ku3ku5"
    "a2c15al25u3a2cal11a5l24dl6a8m9l41km10u14au29m4l54m2ulm15um2lu4m3l10m2c2n10ckl15m3al8a2l2a2"
    "l22al7ala3l4a2ulm7a2m2a2m2ula8ma4l2al3m2a2n10l2d2b6d2lcma2m3al6a4l2a2l22al7al2al2al2a2uam5"
    "a4m2a2m2ua3ma7l4ala7n10m2l3mca10m3al9al3al22al7al2al5a2ulm8am3am2ua2la15l2m2a2n10cda7lm6am"
    "3al8a2l2a2l22al7al2al5a2ulm7a2m2a2m2ua7m3a4l2al3m2a2n10dlb6a10mlal6a3l3al4a3l2alal2a3l2a3l"
    "3a3l12a4m5a3m3am3ua2la6ma14n10b3d8a5m5l8al3al23al16a2mlm7am3am3ua7u2al3a2la2l2m2a2n10a7cb7"
    "dlm3cl8al3al23al10al5a2ulm7am3am3ua7m2a6l2al2m2a2n10al2ma12m4l9al3al41m2lm7am3am3ulda4l3mb"
    "7l3m2a2n10b9dl6am3al18a3l24al9ala2l7a3ua4m6amam8a6n10a2m2ca12l48ml2m4u3a4dl6kmu4m3cn10c2a3"
    "7l2alal5al24alal10ml2m4u2m3la2l5akau4m3an10a2l4a32ld3c15dcd3u2d6n10b10dududuc4m2l8al36a4u2"
    "mum5u4m2umu3cu2l5m11am36ad8ud6ad2c5d4c2a37l43m12umu2m4ln10c6l6m4l4m3lm3l2m7l3m4l13m11ulmn1"
    "0m4d2h38aha5ha2i43cki3l329al4a2l7alal4a2l41al4a2l33al4a2l7alal4a2l15al57al4a2l67a2u3c9b20a"
    "3l16d10a6h86a2i6a2cl620dcl17gl26c2a3l75c3n3l8a7l18m2uma9l19m2uc2a9l18m2a12l13al3am2a12l52m"
    "30umc3kc3dlua2n10a6b10a6c11m3amn10a6l35kl53a7l5m2l34ula5l70a10l31am12a4m9u3a4da3c2n10l30a2"
    "l5a11l44a4l26a6n10ba3d34l23u2m3a2c2l53m10aum20u8a2un10a6n10a6c7kc6a2u14m17a49m5l47um15ul8a"
    "c2n10c7d10u9d9c3m3l30m9u2m2l2n10l44um11u2a8c4l36m19ua3c5n10a3l3n10l30k6c2i9hia5h43a2h3c8a8"
    "u3cu13mu7l4ul6ul2mu2la5i44k63i13ki34k37u54m5u5hihihihihihihihihihihihihihihihihihihihihihi"
    "hihihihihihihihihihihihihihihihihihihihihihihihihihihihihihihihihihihihihihihihihihihihihi"
    "hihihihihihihihi9hihihihihihihihihihihihihihihihihihihihihihihihihihihihihihihihihihihihih"
    "ihihihihihihihihihihihihi9h8i6a2h6a2i8h8i8h8i6a2h6a2i8ahahahahi8h8i14a2i8j8i8j8i8j8i5ai2h4"
    "jdid3i3ai2h4jd3i4a2i2h4ad3i8h5d3a2i3ai2h4jd2ag11a5c24g2a5gc15o2c3dc13dcoc10ga16bka2b6d3c2k"
    "b10d3c2ak13a3d33a15u13m4um3u12a15d2hd4hd2ih3i2h3idhd3h5d6hdhdhdh4dih4il4id2i2h2d5hi4d4idb1"
    "6n35hin4bd2a4d376c4d29c2d255a22d11a21b60d26p52b22d616c14b30d49c2d31c10d403c22d63c4d32c2d37"
    "4a2d32ad105h48i48hih3i2hihihih4ihi2hi6k2h3ihihihihihihihihihihihihihihihihihihihihihihihih"
    "ihihihihihihihihihihihihihihihihihihihihihihihihihi2d6hihiu3hia5c4bc2i38aia5ia2l56a7kca14u"
    "l23a9l7al7al7al7al7al7al7al7au32c47kc32d2c12a34f26af89a12f214a26d16gc3dqltc10d2c12dt9u6ck5"
    "d2t3qlcd2al86a2u2d2k2lcl90ck3la5l43al94ad2b4d10l32d38a9dl16d31ab10d30b8db15d32b10d39b15d32"
    "0r6592d64r20992l21kl1143a3d55a9l40k6c2l268kc3l16n10l2a20hihihihihihihihihihihihihihihihihi"
    "hihihihihihilum3cu10ckhihihihihihihihihihihihihihik2u2l70n10u2c6a8d23k9d2hihihihihihihi3hi"
    "hihihihihihihihihihihihihihihihihihihihihihihihihihihihihihiki8hihih2ihihihihikd2hihilhihi"
    "3hihihihihihihihihihih5ih5ihihihihihihihih4ihih2ia2hiaiaihihihiha21k3hilk2il7ml3ul4ml23m5d"
    "4ma3b6d4a6l52c4a8m2l50m16uma8c2n10a6u18l6c3lcl2mn10l28m5u3c2l23m12ua11cl29a3m4l47um12uc13a"
    "kn10a4c2l5mkl9n10l5al41m14a9l3ml8m2a2n10a2c4l16kl6d3lm3l50ulu3l2u2l5u2lula24l2kc2l11m5c2lk"
    "2mua10l6a2l6a2l6a9l7al7ai43dk4i9kd2a4i80l35m8cmua2n10a6l11172a12l23a4l49a8452r366a2r106a38"
    "i7a12i5a5lul10dl13al5alal2al2al108d17a16l363c2d16l64a2l54a7da32l12d4m16c10a6u16c3o2c24o3c3"
    "ac14dcd3acdc2a4l5al135a4c3dc6dc4n10c2d3c2h26c3dodi26cdcdc7l10kl45k2l31a3l6a2l6a2l6a2l3a3d7"
    "ad7a13d2a2l12al26al19al2al15a2l14a34l123a5c3a4b45a3d9n53b4d17b2d3ad13a3da47d45ua130l29a3l4"
    "9a15ub27a4l32b4a9l20nl8na5l38u5a5l30acl36a4l8cn5a42h40i40l78a2n10a6h36a4i36a4l40a8l52a11ch"
    "11ah15ah7ah2ai11ai15ai7ai2a3l52a12l311a9l22a10l8a24k6ak42ak9a69l6a2lal44al2a3la2l23acb8l23"
    "d2b7l31a8b9a48l19al2a5b5l22b6a3cl26a5ca64l56a4b2l2b16a2b46lm3am2a5mumul4al3al29a2u3a4ub9a7"
    "c9a7l29b2cl29b3a32l8dl28u2a4b5c7a9l54a3c7l22a2b8l19a5b8l18a7c4a12b7a80l73a55h51a13i51a7b6l"
    "36m4a8n10a6n10l4klh22a3m5cki22a8d2a208b31al42am2ca2l2a16l3a55m4l29b10la8l22m11b4c5a22l18m4"
    "c4a38l21b7a20l23a9m3l53m14uc7a4b20n10ml2m2la9um3l45m9u2c2ac4ma13l25a7n10a6u3l36m12u2an10c4"
    "lm2la8l35uc2la9m3l48m13ul4c4mum2cm2n10lclc3ab20a11l18al25m9u2mc6ml2ma62l7alal4al15al10ca6l"
    "47m10u2a5n10a6m4al8a2l2a2l22al7al2al5amulm7a2m2a2m2ua2la6ma5l5m2a2u7a3u5a11l10ala2lal38alm"
    "9ama2mam4am5lmlc2ac2a8m2a29l53m13um3ul4c5n10c2acml3a30l48m18u2l2cla8n10a166l47m7a2m7u2c23l"
    "4m2a34l48m15umc3la11n10a6c13a19l43m11u2lca6n10a6n20a28l27a2m14ua4n10b2c3dl7a185l44m15ca100"
    "h32i32n10b9a12l8a2la2l8al2al24m6am2a2m4lmlm2c3a9n10a70l8a2l39m7a2m7lclma27lm10l40m7lm4c8ma"
    "8lm11l46m16c3lc5a13l73a7c10a182l33ca14n10a6l9al37m8am7ulc5a10n10b19a3c2l30a2m22am14a73l7al"
    "2al38m6a3mam2am7lma8n10a6l6al2al32m5am2am5la7n10a310l19m4c2a7m2lml13al34m7a3m5c13n10ma85la"
    "15b21d29a13cl922a102n111ac5a11l196a2636l97c2a13l1072a16ml6m15a10l3995a5l583a6841l30m18n10a"
    "1734l569a7l31an10a4c2l79an10a6l30a2u5ca10l48u7c5d4k4cda10n10ab7al21a5l19a432k3l40k2c3n10a1"
    "98h32i32b23c4a101l75a4mlm55a7m4k13a64k2eqma11s2a14l6136a8l1238a41l10a8935k4ak7ak2al291a15l"
    "a29l3a2la14l4a8l396a2308l107a5l13a3l9a7l10a2dmuca3936d240n10a6d436a76m46a2m23a9d116a60d246"
    "a10d39a2d60u5d3u6a8u8d2u7d30u4d61a21d66u3da122b20a12b20a12d87a9b25a135h26i26h26i7ai18h26i2"
    "6hah2a2ha2h2a2h4ah8i4aiai7ai11h26i26h2ah4a2h8ah7ai26h2ah4ah5aha3h7ai26h26i26h26i26h26i26h2"
    "6i26h26i26h26i28a2h25di25di6h25di25di6h25di25di6h25di25di6h25di25di6hia2n50d512m55d4m50d8m"
    "d14md2c5a15m5am15a1104i10li20a6i6a213u7au17a2u7au2au5a5k62a33ma112l45a3m7k7a2n10a4lda320l3"
    "0ma17l44m4n10a5da464l27km4n10a214l30m2ln10a4ca480l7al4al2al15al197a2b9u7a41h34i34u7ka4n10a"
    "4c2a785b59db3db4a76b45db15a194l4al27al2ala2lal10al4alala6la4lalalal3al2ala2lalalalalal2ala"
    "2l4al7al4al4alal10al17a5l3al5al17a52d2a270d44a4d100a12d15a2d15ad15ad37a10b13d35p26d6p26d6p"
    "26d36a56d29a13d44a4d9a7d2a14d6a154d984a4d17a3d13a3d119a4d95a6d12a4da15d12a4d56a8d10a6d40a8"
    "d30a2d12a4d2a62d340a12d14a2d13a3d10a5d56a7d15a2d11a6d9a7d147ad92n10a1030r42720a32r4154a6r2"
    "22a2r5762a14r7473a15r622a2466r542a1506r4939a5r4192a712016m240a196112";
// clang-format on

}  // namespace lode::text
